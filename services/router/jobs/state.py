"""The job state table: which state may follow which. Pure data, tested for every pair."""

from typing import Literal, get_args

JobState = Literal[
    "queued", "launching", "running", "cancelling", "succeeded", "failed", "cancelled"
]

STATES: tuple[JobState, ...] = get_args(JobState)

NEXT: dict[JobState, frozenset[JobState]] = {
    "queued": frozenset({"launching", "cancelling"}),
    "launching": frozenset({"running", "failed", "cancelling"}),
    "running": frozenset({"succeeded", "failed", "cancelling"}),
    "cancelling": frozenset({"cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset({"queued"}),
    "cancelled": frozenset({"queued"}),
}
"""State -> states that may follow. From failed and cancelled a job is resumed as queued."""

ACTIVE: frozenset[JobState] = frozenset({"launching", "running"})
"""States in which processes work for the job."""

FINISHED: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})
"""States in which nothing happens any more."""


def before(state: JobState) -> list[JobState]:
    """States that ``state`` may follow."""
    return [earlier for earlier in STATES if state in NEXT[earlier]]
