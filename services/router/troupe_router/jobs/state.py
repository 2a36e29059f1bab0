"""The job state table: which state may follow which. Pure data, tested for every pair."""

from typing import get_args

from troupe.clients.rest.models.jobs import JobState

STATES: tuple[JobState, ...] = get_args(JobState)

NEXT: dict[JobState, frozenset[JobState]] = {
    "queued": frozenset({"launching", "paused", "cancelling"}),
    "launching": frozenset({"running", "failed", "pausing", "cancelling"}),
    "running": frozenset({"succeeded", "failed", "pausing", "cancelling"}),
    "pausing": frozenset({"paused", "succeeded", "failed", "cancelling"}),
    "paused": frozenset({"queued", "cancelling"}),
    "cancelling": frozenset({"cancelled", "succeeded", "failed"}),
    "succeeded": frozenset({"queued"}),
    "failed": frozenset({"queued"}),
    "cancelled": frozenset({"queued"}),
}
"""State -> states that may follow. A job that is paused or finished is resumed as queued; one that
succeeded, with more steps. One that has its result, or has failed, ends so however late it is
cancelled: its summary says so already."""

ACTIVE: frozenset[JobState] = frozenset({"launching", "running"})
"""States in which processes work for the job."""

HOLDING: frozenset[JobState] = frozenset({"launching", "running", "pausing", "cancelling"})
"""States in which replicas may still be held: they count against the quota."""

FINISHED: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})
"""States in which nothing happens any more."""


def before(state: JobState) -> list[JobState]:
    """States that ``state`` may follow."""
    return [earlier for earlier in STATES if state in NEXT[earlier]]
