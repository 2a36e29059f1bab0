"""Which run folders may go: by age, by number and by size. Pure.

The oldest go first. What runs, is pinned, may still be resumed, or is named in the spec of an
unfinished job is never chosen; it counts towards the limits all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from troupe.clients.rest.models.jobs import JobState
from troupe_router.jobs.state import FINISHED

Limit = Literal["age", "number", "size"]
RESUMABLE: frozenset[JobState] = frozenset({"failed", "cancelled", "paused"})


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What run folders may take together; 0: no limit.

    ``resumable_s``: a job that can be resumed is kept for so long after it came to rest.
    """

    max_age_s: float = 0.0
    max_jobs: int = 0
    max_bytes: int = 0
    resumable_s: float = 30 * 86400.0

    @property
    def is_on(self) -> bool:
        """Whether there is any limit."""
        return self.max_age_s > 0 or self.max_jobs > 0 or self.max_bytes > 0


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A job's run folder. ``rested_at``: when the job came to its present state, in Unix seconds; 0
    where that is not known.

    ``is_read``: the spec of an unfinished job names a path in it, such as a model's.

    Example: ``KeptRun("demo-1", "succeeded", 1.7e9, 5 << 20)``.
    """

    name: str
    state: JobState
    rested_at: float
    size_bytes: int
    is_pinned: bool = False
    is_read: bool = False

    def protection(self, limits: RetentionLimits, now: float) -> str:
        """Why it may not go; empty: it may."""
        if self.state not in FINISHED and self.state != "paused":
            return f"the job is {self.state}"
        if self.is_pinned:
            return "the job is pinned"
        if self.is_read:
            return "an unfinished job reads files of it"
        if self.rested_at <= 0:
            return "it is not known when the job ended"
        if self.state in RESUMABLE and now - self.rested_at < limits.resumable_s:
            return f"the job is {self.state} and may be resumed"
        return ""


@dataclass(frozen=True, slots=True)
class Excess:
    """A run folder that may go, and the limit that it exceeds."""

    run: KeptRun
    why: Limit


def excess(runs: Sequence[KeptRun], limits: RetentionLimits, now: float) -> list[Excess]:
    """The run folders that go, oldest first."""
    oldest = sorted(runs, key=lambda run: (run.rested_at, run.name))
    num_runs, num_bytes = len(runs), sum(run.size_bytes for run in runs)
    chosen: list[Excess] = []
    for run in oldest:
        if run.protection(limits, now):
            continue
        why: Limit
        if limits.max_age_s and now - run.rested_at > limits.max_age_s:
            why = "age"
        elif limits.max_jobs and num_runs > limits.max_jobs:
            why = "number"
        elif limits.max_bytes and num_bytes > limits.max_bytes:
            why = "size"
        else:
            continue
        num_runs, num_bytes = num_runs - 1, num_bytes - run.size_bytes
        chosen.append(Excess(run, why))
    return chosen
