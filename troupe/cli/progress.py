"""A job's progress on the terminal: folds events into one state, drawn as a live panel or lines.

Owns reading and drawing events. Never calls the router.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from troupe.clients.rest import EventDocument, JobDocument

_NOTEWORTHY = frozenset(
    {
        "phase.overdue",
        "learning.flat",
        "learning.sparse",
        "learning.truncated",
        "reward.suspect",
        "program.failing",
        "weights.refused",
        "job.interrupted",
        "checkpoint.failed",
        "recording.failed",
        "records.lost",
        "tracker.failed",
        "disk.low",
        "redis.low",
        "redis.resolved",
        "disk.resolved",
    }
)
"""Events that are shown besides progress; the event carries the text."""


@dataclass(slots=True)
class Progress:
    """The state of a job, folded from its events so far.

    ``metrics`` and ``phases`` (seconds) are the last recorded step's; ``evals`` are (step, success
    rate) pairs, ``eval_rewards`` (step, mean reward); ``marks`` are (instant, recorded steps)
    pairs, Unix seconds; ``curves`` hold (step, value) pairs of every step so far.
    """

    job_id: str
    steps: int
    state: str = "queued"
    reason: str = ""
    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    phases: dict[str, float] = field(default_factory=dict[str, float])
    evals: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    eval_rewards: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    curves: dict[str, list[tuple[int, float]]] = field(
        default_factory=dict[str, list[tuple[int, float]]]
    )
    marks: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    @classmethod
    def of(cls, job: JobDocument) -> "Progress":
        """The state before any event."""
        return cls(job.job_id, job.steps, job.state, job.reason, job.step)

    def apply(self, event: EventDocument) -> str | None:
        """Fold ``event`` into the state; the line to print for it, or None."""
        if event.type == "job.state":
            return self._on_state(event.data)
        if event.type == "round.played" and event.data.get("kind") == "eval":
            return self._on_eval(event.data)
        if event.type == "step.recorded":
            return self._on_step(event)
        message = next(
            (event.data[k] for k in ("sentence", "error", "reason") if event.data.get(k)), ""
        )
        if event.type in _NOTEWORTHY and message:
            return f"{event.type}: {message}"
        if event.type in ("component.restarted", "job.warning", "parity.alarm"):
            return " ".join([event.type, *(f"{k}={v}" for k, v in event.data.items())])
        return None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last step at the pace of the last ten, or None before two are done."""
        recent = self.marks[-10:]
        if len(recent) < 2 or recent[-1][1] == recent[0][1]:
            return None
        pace_s = (recent[-1][0] - recent[0][0]) / (recent[-1][1] - recent[0][1])
        return max(0.0, pace_s * (self.steps - recent[-1][1]))

    def numbers(self) -> list[tuple[str, str]]:
        """The last step's numbers as (label, text) pairs."""
        return [
            (label, form.format(self.metrics[k])) for k, label, form in _SHOWN if k in self.metrics
        ]

    def tail(self) -> str:
        """What the last step waited for at the end of its round; "" below a second."""
        seconds = self.metrics.get("tail_s", 0.0)
        if seconds < _SHORT_TAIL_S:
            return ""
        late, draws = (round(self.metrics.get(name, 0.0)) for name in ("tail_draws", "num_draws"))
        return f"waited {seconds:.0f} s for {late} of {draws} draws"

    def _on_state(self, data: Mapping[str, Any]) -> str:
        self.state = str(data.get("state", self.state))
        self.reason = str(data.get("reason") or "")
        # Why it failed is long, and is said by the outcome that follows.
        is_said = self.reason and self.state != "failed"
        return f"{self.job_id}: {self.state}" + (f" ({self.reason})" if is_said else "")

    def _on_eval(self, data: Mapping[str, Any]) -> str:
        step, success = int(data.get("step", 0)), data.get("success_rate")
        if not isinstance(success, int | float):
            return f"held-out after {step} steps: no task could be played"
        reward = data.get("reward_mean")
        if (step, success) not in self.evals:
            self.evals.append((step, success))
            if _is_number(reward):
                self.eval_rewards.append((step, reward))
        count = data.get("num_episodes", "?")
        line = f"held-out after {step} steps: {success:.1%} of {count} tasks solved"
        return f"{line}, reward {reward:+.3f} an episode" if _is_number(reward) else line

    def _on_step(self, event: EventDocument) -> str:
        self._take(event.data)
        done = int(event.data.get("step", self.step)) + 1
        self.step = max(self.step, done)
        self.marks.append((event.occurred_at or time.time(), done))
        return f"step {done:>4}/{self.steps}  " + "  ".join(self._words())

    def _take(self, data: Mapping[str, Any]) -> None:
        phases = data.get("phases")
        if isinstance(phases, dict):
            self.phases = {k: float(v) for k, v in phases.items() if _is_number(v)}
        self.metrics = {k: float(v) for k, v in data.items() if _is_number(v)}
        for name, _ in _CURVES:
            if name in self.metrics:
                point = (int(data.get("step", self.step)), self.metrics[name])
                self.curves.setdefault(name, []).append(point)

    def _words(self) -> list[str]:
        words = [f"{label} {value}" for label, value in self.numbers()]
        words += [f"{name} {spent:.1f} s" for name, spent in self.phases.items()]
        words += [tail] if (tail := self.tail()) else []
        return [*words, f"eta {clock(self.eta_s)}"] if self.eta_s is not None else words


_SHOWN = (
    ("success_rate", "success", "{:.2f}"),
    ("reward_mean", "reward", "{:+.3f}"),
    ("tokens_per_s", "tokens/s", "{:.0f}"),
    ("kl_rollout", "kl", "{:.4f}"),
    ("entropy", "entropy", "{:.3f}"),
    ("wall_s", "step", "{:.1f} s"),
    ("busy_ratio", "busy", "{:.2f}"),
)


_SHORT_TAIL_S = 1.0
_CURVES = (("success_rate", "success"), ("reward_mean", "reward"))
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """A sparkline of the last ``width`` values, scaled from their minimum to their maximum."""
    shown = values[-width:]
    if not shown:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((v - low) / span * top) if span > 0 else 0] for v in shown)


def panel(progress: Progress, started_at: float, *, waits_for: str = "") -> RenderableType:
    """The live view of ``progress``; ``started_at`` in Unix seconds."""
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        Text(progress.state, style=_STYLES.get(progress.state, "cyan")),
        ProgressBar(total=max(progress.steps, 1), completed=progress.step, width=32),
        f"step {progress.step}/{progress.steps}",
        f"elapsed {clock(time.time() - started_at)}",
        f"left {clock(progress.eta_s)}",
    )
    numbers = Table.grid(padding=(0, 3))
    numbers.add_row(*(_labelled(*number) for number in progress.numbers()))
    phases = [(name, f"{spent:.1f} s") for name, spent in progress.phases.items()]
    evals = [(f"step {step}", f"{success:.1%}") for step, success in progress.evals]
    rows: list[RenderableType] = [bar, numbers]
    rows += [_line("phases", phases)] if phases else []
    rows += [_labelled("tail    ", tail)] if (tail := progress.tail()) else []
    rows += [_line("held out", evals)] if evals else []
    for name, label in _CURVES:
        values = [value for _, value in progress.curves.get(name, [])]
        if len(values) > 1:
            ends = f"{min(values[-_WIDTH:]):.2f} .. {max(values[-_WIDTH:]):.2f}"
            rows.append(
                Text.assemble((f"{label:<9}", "dim"), sparkline(values), (f" {ends}", "dim"))
            )
    rows += [Text(waits_for, style="dim")] if waits_for else []
    return Panel(Group(*rows), title=progress.job_id, title_align="left")


def _line(title: str, numbers: Sequence[tuple[str, str]]) -> Text:
    shown = (_labelled(label, value) for label, value in numbers)
    return Text.assemble(f"{title:<9}", Text("  ").join(shown))


def _labelled(label: str, value: str) -> Text:
    return Text.assemble((f"{label} ", "dim"), value)


_STYLES = {"succeeded": "green", "failed": "red", "cancelled": "yellow", "running": "cyan"}


def clock(seconds: float | None) -> str:
    """Seconds as m:ss or h:mm:ss; "-" when unknown."""
    if seconds is None:
        return "-"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
