"""The learning curve of a run folder as a figure, from metrics.jsonl; ``curve.png`` is the same.

``python -m troupe.evaluation.curve RUN_FOLDER`` writes it; the router does so in a process of its
own when a job ends, where matplotlib is installed (the extra ``plots``).
"""

import io
import sys
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.evaluation.run_report import whole_lines

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d9d9d", "#eeca3b")


def draw(run_dir: Path) -> None:
    """Write ``curve.png``, where there are metrics."""
    if (run_dir / "metrics.jsonl").is_file():
        figure(run_dir).savefig(run_dir / "curve.png", dpi=110)


def figure(run_dir: Path) -> Any:
    """Success, reward by agent, and the phases of each step: a Figure.

    The reward of a held-out episode has axes of its own, where the run tells it.

    Raises InvalidArgumentError where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidArgumentError(
            "a curve needs matplotlib; install it with pip install 'troupe[plots]'"
        ) from error

    class NotebookFigure(Figure):
        """Shows itself in a notebook, where no ``%matplotlib`` was asked for."""

        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=80)
            return image.getvalue()

    lines = list(whole_lines(run_dir / "metrics.jsonl"))
    train = sorted((x for x in lines if x["kind"] == "train"), key=lambda x: x["step"])
    evals = sorted((x for x in lines if x["kind"] == "eval"), key=lambda x: x["step"])
    agents = sorted({agent for line in lines for agent in line.get("reward_by_agent", {})})
    num_axes = 4 if any(line.get("reward_by_agent") for line in evals) else 3
    drawn = NotebookFigure(figsize=(8, 1 + 3 * num_axes))
    success, reward, *of_episodes, phases = drawn.subplots(num_axes, 1, sharex=True)
    steps, held_out = [line["step"] for line in train], [line["step"] for line in evals]
    success.plot(steps, [_number(x["success_rate"]) for x in train], lw=1, label="training round")
    success.plot(held_out, [_number(x["success"]) for x in evals], "o-", label="held out")
    success.set(ylabel="success", ylim=(0, 1.02), title=run_dir.name)
    success.legend(loc="lower right")
    _rewards(reward, train, agents, "reward of a candidate", "-")
    for axes in of_episodes:
        _rewards(axes, evals, agents, "reward of an episode, held out", "o-")
    _bars(phases, train, steps)
    for axes in drawn.axes:
        axes.grid(alpha=0.3)
    drawn.tight_layout()
    return drawn


def _rewards(
    axes: Any, lines: list[dict[str, Any]], agents: list[str], words: str, style: str
) -> None:
    """Each agent's reward, where any line tells it."""
    steps = [line["step"] for line in lines]
    for index, agent in enumerate(agents):
        told = [line.get("reward_by_agent", {}).get(agent) for line in lines]
        if any(value is not None for value in told):
            colour = _COLOURS[index % len(_COLOURS)]
            axes.plot(steps, [_number(v) for v in told], style, color=colour, label=agent)
    axes.set(ylabel=words)
    if axes.lines:
        axes.legend(loc="lower right")


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
