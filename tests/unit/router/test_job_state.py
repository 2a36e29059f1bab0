"""The job state table, pair by pair."""

import pytest

from troupe_router.jobs.state import ACTIVE, FINISHED, HOLDING, NEXT, STATES, before

ALLOWED = {
    ("queued", "launching"),
    ("queued", "paused"),
    ("queued", "cancelling"),
    ("launching", "running"),
    ("launching", "failed"),
    ("launching", "pausing"),
    ("launching", "cancelling"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "pausing"),
    ("running", "cancelling"),
    ("pausing", "paused"),
    ("pausing", "succeeded"),
    ("pausing", "failed"),
    ("pausing", "cancelling"),
    ("paused", "queued"),
    ("paused", "cancelling"),
    ("cancelling", "cancelled"),
    ("cancelling", "succeeded"),
    ("cancelling", "failed"),
    ("succeeded", "queued"),
    ("failed", "queued"),
    ("cancelled", "queued"),
}


@pytest.mark.parametrize("earlier", STATES)
@pytest.mark.parametrize("later", STATES)
def test_transition_of_every_pair_is_as_the_table_says(earlier: str, later: str) -> None:
    assert (later in NEXT[earlier]) == ((earlier, later) in ALLOWED)
    assert (earlier in before(later)) == ((earlier, later) in ALLOWED)


def test_states_finished_and_active_never_meet() -> None:
    assert not FINISHED & ACTIVE
    assert not FINISHED & HOLDING
    assert ACTIVE < HOLDING
