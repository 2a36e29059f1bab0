"""Which run folders may go: limits hold as far as protection lets them, and the oldest go first."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.clients.rest.models.jobs import JobState
from troupe_router.run.retention import KeptRun, RetentionLimits, excess

NOW = 1_000_000.0
STATES: tuple[JobState, ...] = get_args(JobState)

runs = st.lists(
    st.builds(
        KeptRun,
        name=st.text("abc", min_size=1, max_size=6),
        state=st.sampled_from(STATES),
        rested_at=st.floats(0, NOW),
        size_bytes=st.integers(0, 100),
        is_pinned=st.booleans(),
        is_read=st.booleans(),
    ),
    max_size=20,
    unique_by=lambda run: run.name,
)
limits = st.builds(
    RetentionLimits,
    max_age_s=st.just(0.0) | st.floats(1, NOW),
    max_jobs=st.integers(0, 10),
    max_bytes=st.integers(0, 500),
    resumable_s=st.floats(0, NOW),
)


@given(runs, limits)
def test_excess_is_never_protected_and_what_stays_keeps_every_limit_or_is_protected(
    found: list[KeptRun], limit: RetentionLimits
) -> None:
    gone = [chosen.run for chosen in excess(found, limit, NOW)]
    left = [run for run in found if run not in gone]
    assert all(not run.protection(limit, NOW) for run in gone)
    free = [run for run in left if not run.protection(limit, NOW)]
    if limit.max_age_s:
        assert all(NOW - run.rested_at <= limit.max_age_s for run in free)
    if limit.max_jobs:
        assert len(left) <= limit.max_jobs or not free
    if limit.max_bytes:
        assert sum(run.size_bytes for run in left) <= limit.max_bytes or not free
    if gone and free:
        assert max(run.rested_at for run in gone) <= min(run.rested_at for run in free)


@given(runs)
def test_excess_when_there_is_no_limit_then_nothing_goes(found: list[KeptRun]) -> None:
    assert excess(found, RetentionLimits(resumable_s=0.0), NOW) == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_old", [False, True])
def test_run_is_protected_for_every_state_and_reason(
    state: JobState, is_pinned: bool, is_read: bool, is_old: bool
) -> None:
    run = KeptRun("a-1", state, 1.0 if is_old else NOW - 1, 1, is_pinned, is_read)
    limit = RetentionLimits(max_age_s=0.5, resumable_s=100.0)
    may_go = state == "succeeded" or (state in ("failed", "cancelled", "paused") and is_old)
    may_go = may_go and not is_pinned and not is_read
    assert (run.protection(limit, NOW) == "") == may_go
    assert bool(excess([run], limit, NOW)) == may_go
