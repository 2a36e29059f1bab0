"""What is being checked, how hard, and how another process finds the same family again."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from troupe.conformance.checked_environment import CheckedEnvironment
from troupe.conformance.findings import Findings
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import SandboxedTaskFamily, Split, Task, TaskFamily, Taskset
from troupe.tasks.registry import make_environment


@dataclass(frozen=True, slots=True)
class Reference:
    """How another process loads the same family: what ``load_family`` takes, and import folders.

    ``sandbox`` names the one that a family which runs programs gets there.

    Example: ``Reference("plan_path", {"size": 6})``.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    import_paths: tuple[str, ...] = ()
    sandbox: str = "local"


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """How hard the kit tries, and what it puts up with. Times in seconds, sizes in bytes.

    ``seconds`` is shared out among the searches; each of them runs its fixed tactics at least
    once, so a check may take longer, up to about ``check_seconds`` each; one that is cut short
    says so. A step slower than ``step_limit_s`` fails; None means 2 s, and 60 s (a job's default)
    for a family whose steps run programs, since those may use up their own limits. A state larger
    than ``state_warn_bytes`` warns, one larger than ``state_fail_bytes`` fails. ``num_draws``
    tasks of each split are drawn anew; ``num_processes`` others judge what this one judged.
    """

    num_tasks: int = 6
    seconds: float = 10.0
    max_steps: int = 24
    check_seconds: float = 60.0
    step_limit_s: float | None = None
    state_warn_bytes: int = 4 * 1024
    state_fail_bytes: int = 1024 * 1024
    info_warn_bytes: int = 64 * 1024
    num_draws: int = 40
    num_processes: int = 2
    split_sample: int = 300
    split_whole: int = 20_000
    huge_chars: int = 1_000_000
    seed: int = 0


STEP_S, SANDBOXED_STEP_S = 2.0, 60.0
"""Seconds that a step may take where ``CheckLimits`` does not say."""


class Subject:
    """A family under test: its tasks, a watched environment, and the clock of its searches."""

    def __init__(
        self,
        family: TaskFamily,
        *,
        reference: Reference | None,
        sandbox: Sandbox | None,
        limits: CheckLimits,
    ) -> None:
        self.family = family
        self.reference = reference
        default_s = SANDBOXED_STEP_S if isinstance(family, SandboxedTaskFamily) else STEP_S
        self.limits = replace(limits, step_limit_s=limits.step_limit_s or default_s)
        self.findings = Findings()
        self._check_clock = Clock(limits.check_seconds)
        self._sandbox = sandbox

    @property
    def is_scripted(self) -> bool:
        """Its demonstrations are better than chance; the family says so when they are not."""
        return bool(getattr(self.family, "is_scripted", True))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Agents in the order in which they usually act."""
        return tuple(self._usual.get("order", self.family.agents))

    @cached_property
    def episode_steps(self) -> int:
        """Steps that an episode usually may take."""
        usual = int(self._usual.get("max_turns", 0)) * len(self.order)
        return max(usual, self.limits.max_steps)

    @property
    def _usual(self) -> Mapping[str, Any]:
        return getattr(self.family, "usual_workflow", {})

    @cached_property
    def taskset(self) -> Taskset:
        """One taskset, used throughout."""
        return self.family.taskset()

    @cached_property
    def env(self) -> CheckedEnvironment:
        """One watched environment, used throughout."""
        return self.fresh_env()

    def fresh_env(self) -> CheckedEnvironment:
        """A watched environment that has judged nothing yet."""
        return CheckedEnvironment(
            make_environment(self.family, self._sandbox), self.family, self.limits, self.findings
        )

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks to play: from every split, most from train."""
        count = max(self.limits.num_tasks, 1)
        wanted: list[tuple[Split, int]] = [("train", i) for i in range(count)]
        wanted[-1:] = [("train", count - 1), ("validation", 0), ("test", 0)]
        return tuple(
            self.taskset.task(split, index)
            for split, index in wanted
            if (size := self.taskset.size(split)) is None or index < size
        )

    def begin_check(self) -> None:
        """A check starts: its time runs from here."""
        self._check_clock = Clock(self.limits.check_seconds)

    @property
    def is_over(self) -> bool:
        """The running check has had its time."""
        return self._check_clock.is_over

    def is_late(self, check: str) -> bool:
        """``check`` has had more than its time and should end; its evidence then says so."""
        if not self._check_clock.is_over:
            return False
        cut = f"cut short after {self.limits.check_seconds:g} s"
        if cut not in self.findings.of(check).facts:
            self.findings.fact(check, cut)
        return True

    def share(self, part: float) -> "Clock":
        """A clock that runs for ``part`` of the kit's time."""
        return Clock(self.limits.seconds * part)


class Clock:
    """Says when a search has had its time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """No time is left."""
        return time.monotonic() >= self._end
