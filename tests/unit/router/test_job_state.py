"""The job state table, pair by pair."""

import pytest

from services.router.jobs.state import ACTIVE, FINISHED, NEXT, STATES, before

ALLOWED = {
    ("queued", "launching"),
    ("queued", "cancelling"),
    ("launching", "running"),
    ("launching", "failed"),
    ("launching", "cancelling"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancelling"),
    ("cancelling", "cancelled"),
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
