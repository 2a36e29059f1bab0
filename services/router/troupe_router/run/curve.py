"""Draws curve.png from metrics.jsonl. Run as a process: matplotlib stays out of the router.

The router's image has no matplotlib. Where it is installed (the extra ``plots``), this draws a run
folder's curve later: ``python -m troupe_router.run.curve RUN_FOLDER``.
"""

import json
import sys
from pathlib import Path
from typing import Any

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d9d9d")


def draw(run_dir: Path) -> None:
    """Success and evaluation, reward by agent, and the phases of each step."""
    path = run_dir / "metrics.jsonl"
    if not path.is_file():
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    text = path.read_text(encoding="utf-8")
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    train = sorted((x for x in lines if x["kind"] == "train"), key=lambda x: x["step"])
    evals = sorted((x for x in lines if x["kind"] == "eval"), key=lambda x: x["step"])
    figure, (success, reward, phases) = pyplot.subplots(3, 1, figsize=(8, 10), sharex=True)
    steps = [line["step"] for line in train]
    success.plot(
        steps, [_number(x["success_rate"]) for x in train], lw=1, label="training round (best of K)"
    )
    success.plot(
        [line["step"] for line in evals],
        [_number(x["success"]) for x in evals],
        "o-",
        label="held out",
    )
    success.set(ylabel="success", ylim=(0, 1.02), title=run_dir.name)
    success.legend(loc="lower right")
    for agent in sorted({a for line in train for a in line["reward_by_agent"]}):
        reward.plot(steps, [_number(x["reward_by_agent"].get(agent)) for x in train], label=agent)
    reward.set(ylabel="mean reward")
    if train:
        reward.legend(loc="lower right")
    _bars(phases, train, steps)
    for axes in (success, reward, phases):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(run_dir / "curve.png", dpi=110)


def _bars(axes: Any, train: list[dict[str, Any]], steps: list[int]) -> None:
    names = list(dict.fromkeys(name for line in train for name in line["phases"]))
    bottom = [0.0] * len(train)
    for index, name in enumerate(names):
        heights = [float(line["phases"].get(name, 0.0)) for line in train]
        colour = _COLOURS[index % len(_COLOURS)]
        axes.bar(steps, heights, bottom=bottom, width=1.0, label=name, color=colour)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set(ylabel="seconds a step", xlabel="step")
    if names:
        axes.legend(loc="upper right", fontsize="small", ncols=3)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
