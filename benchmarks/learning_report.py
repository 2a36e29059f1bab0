"""The table and the plot of `benchmarks.learning_curve`. Owns no run."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import commit, machine


def write_report(
    rows: Sequence[Mapping[str, Any]], missing: Sequence[str], plan: argparse.Namespace
) -> None:
    """Table and picture; what was not run is named."""
    text = [
        f"# Held-out success after {plan.tokens:,} generated tokens",
        "",
        f"`python -m benchmarks.learning_curve`, commit {commit()}, {machine()}, "
        f"{len(plan.seeds)} seeds, "
        f"{plan.eval_tasks} held-out tasks; 95 % intervals (Student's t over seeds).",
        "",
        "| task | arm | algorithm | level | n | base | success | interval | each seed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    text += [
        f"| {r['task']} | {r['arm']} | {r['algorithm']} | {r['level']} | {r['n']} | "
        f"{r['base']:.3f} | {r['success']:.3f} | {r['spread'][0]:.3f} - {r['spread'][1]:.3f} | "
        f"{', '.join(f'{v:.3f}' for v in r['values'])} |"
        for r in rows
    ]
    text += ["", f"Not run: {', '.join(missing) or 'nothing'}.", ""]
    text += ["![curves](learning_curve.png)", ""]
    plan.results.mkdir(parents=True, exist_ok=True)
    (plan.results / "learning_curve.md").write_text("\n".join(text))
    draw(rows, plan.results / "learning_curve.png")


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One panel a task, one line a seed, one colour an arm."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tasks = sorted({row["task"] for row in rows})
    figure, axes = plt.subplots(1, len(tasks), figsize=(7 * len(tasks), 4.5), squeeze=False)
    for axis, task in zip(axes[0], tasks, strict=True):
        for number, row in enumerate(r for r in rows if r["task"] == task):
            for i, curve in enumerate(row["curves"]):
                xs, ys = zip(*curve, strict=True)
                label = row["arm"] if i == 0 else None
                axis.plot(xs, ys, color=f"C{number}", alpha=0.7, label=label)
        axis.set(title=task, xlabel="generated tokens", ylabel="held-out success", ylim=(0, 1))
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
