"""Held-out success of several runs over the tokens that they sampled: one picture, one table.

    python -m benchmarks.compare_runs runs/a-1 runs/b-1 --labels AT-GRPO GRPO --out curve.png

Reads what a run leaves behind (``metrics.jsonl``, ``summary.json``) and trains nothing.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.report import commit, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--labels", nargs="+", help="their names in the picture")
    parser.add_argument("--out", type=Path, help="PNG to write")
    parsed = parser.parse_args()
    labels = parsed.labels or [run.name for run in parsed.runs]
    if len(labels) != len(parsed.runs):
        parser.error(f"{len(parsed.runs)} runs and {len(labels)} labels")
    curves = {label: _curve(run) for label, run in zip(labels, parsed.runs, strict=True)}
    rows = [_row(label, run) for label, run in zip(labels, parsed.runs, strict=True)]
    if parsed.out:
        _draw(curves, parsed.out)
    for row in rows:
        print(f"{row['label']:<20} {row['base']:.3f} -> {row['final']:.3f} (se {row['se']:.3f})")
    print(json.dumps({"commit": commit(), "machine": machine(), "n": len(rows), "runs": rows}))


def _curve(run: Path) -> list[tuple[int, float]]:
    """(tokens sampled in training so far, held-out success) at each evaluation."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    tokens = {x["step"]: x["num_tokens"] for x in lines if x["kind"] == "train"}
    evals = sorted((x["step"], x["success"]) for x in lines if x["kind"] == "eval")
    return [(sum(n for s, n in tokens.items() if s < step), value) for step, value in evals]


def _row(label: str, run: Path) -> dict[str, Any]:
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    final, count = summary["final_success"], summary["num_eval"]
    names = ("steps", "tokens", "wall_s", "groups_trained", "groups_dropped", "busy_ratio")
    return {
        "label": label,
        "base": summary["base_success"],
        "final": final,
        "se": math.sqrt(final * (1 - final) / count),
        **{name: summary[name] for name in names},
    }


def _draw(curves: dict[str, list[tuple[int, float]]], target: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    for label, points in curves.items():
        axes.plot([t / 1e6 for t, _ in points], [s for _, s in points], "o-", ms=4, label=label)
    axes.set(xlabel="million tokens sampled in training", ylabel="held-out success", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(loc="center right")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
