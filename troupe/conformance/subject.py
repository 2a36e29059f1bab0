"""The family under test, and a reference by which another process loads the same family."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from troupe.conformance.checked_environment import CheckedEnvironment
from troupe.conformance.findings import Findings
from troupe.conformance.limits import CheckLimits
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Split, Task, TaskFamily, Taskset, runs_programs
from troupe.tasks.optional import (
    Policy,
    missing,
    optional_method,
    random_policy,
    scripted_policy,
)
from troupe.tasks.registry import make_environment
from troupe.tasks.usual import usual_workflow


@dataclass(frozen=True, slots=True)
class Reference:
    """How another process loads the same family: arguments of ``load_family``, import folders.

    ``sandbox`` names the sandbox for a family that runs programs.

    Example: ``Reference("plan_path", {"size": 6})``.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    import_paths: tuple[str, ...] = ()
    sandbox: str = "local"


STEP_S, SANDBOXED_STEP_S = 2.0, 60.0
"""Seconds that a step may take if ``CheckLimits`` sets no limit."""


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
        default_s = SANDBOXED_STEP_S if runs_programs(family) else STEP_S
        self.limits = replace(limits, step_limit_s=limits.step_limit_s or default_s)
        self.findings = Findings()
        self._clock = Clock(limits.total_seconds)
        self._check_clock = Clock(limits.check_seconds)
        self._check_s = limits.check_seconds
        self._sandbox = sandbox

    @property
    def is_scripted(self) -> bool:
        """Whether its demonstrations beat chance; a family declares when they do not."""
        return self.has("demonstrate") and bool(getattr(self.family, "is_scripted", True))

    def has(self, name: str) -> bool:
        """Whether the family has the optional method ``name``."""
        return optional_method(self.family, name) is not None

    def skips_without(self, check: str, *names: str) -> bool:
        """Skip ``check`` if the family lacks one of ``names``, and report which; whether it did."""
        lacking = [name for name in names if not self.has(name)]
        if lacking:
            reason = " and ".join(missing(self.family, name) for name in lacking)
            self.findings.skip(check, f"{reason}, so there is nothing to compare with")
        return bool(lacking)

    @property
    def demonstrate(self) -> Policy:
        """The family's script; without one its random actions."""
        return scripted_policy(self.family, self.env.observe)

    @property
    def random_action(self) -> Policy:
        """The family's random actions; without them words of the prompt."""
        return random_policy(self.family, self.env.observe)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Agents in their usual order."""
        return tuple(usual_workflow(self.family).order)

    @cached_property
    def episode_steps(self) -> int:
        """Usual limit of an episode's steps."""
        usual = usual_workflow(self.family).max_turns * len(self.order)
        return max(usual, self.limits.max_steps)

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
        keys: list[tuple[Split, int]] = [("train", i) for i in range(count)]
        keys[-1:] = [("train", count - 1), ("validation", 0), ("test", 0)]
        return tuple(
            self.taskset.task(split, index)
            for split, index in keys
            if (size := self.taskset.size(split)) is None or index < size
        )

    def begin_check(self, num_left: int) -> None:
        """Start the time of a check, of which ``num_left`` are to come, this one among them.

        It may take two shares of the time that is left, because most checks need less than one.
        """
        fair_s = self._clock.left_s * min(1.0, 2 / num_left)
        self._check_s = min(self.limits.check_seconds, fair_s)
        self._check_clock = Clock(self._check_s)

    @property
    def is_over(self) -> bool:
        """Whether the time of the running check is up."""
        return self._check_clock.is_over

    def is_late(self, check: str) -> bool:
        """Whether ``check`` exceeded its time and should end; its evidence then says so."""
        if not self._check_clock.is_over:
            return False
        cut = f"cut short after {self._check_s:.1f} s"
        if cut not in self.findings.of(check).facts:
            self.findings.fact(check, cut)
        return True

    def share(self, part: float) -> "Clock":
        """A clock that runs for ``part`` of the kit's time."""
        return Clock(self.limits.seconds * part)


class Clock:
    """The time of a search."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left_s == 0.0
