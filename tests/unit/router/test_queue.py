"""Which queued jobs start: hand-worked queues, and what must hold for any."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe_router.jobs.queue import Quota, check_quota, places
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import HOLDING, STATES


def spec(replicas: int, **policy: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "demo",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool"]},
        "agents": {"tool": {"policy": "p"}},
        "policies": {"p": {"model": "m", "replicas": replicas, **policy}},
    }
    return parse_spec(document)


SPECS = {n: spec(n) for n in range(1, 6)}


def job(name: str, state: str, replicas: int, **more: Any) -> JobRecord:
    fields: dict[str, Any] = {"created_at": 1.0, **more}
    return JobRecord(name, SPECS[replicas], Path("x"), state, **fields)  # type: ignore[arg-type]


def starting(jobs: list[JobRecord], quota: Quota) -> list[str]:
    return [place.job.job_id for place in places(jobs, quota) if not place.waits_for]


def test_without_limits_every_job_starts_by_priority_then_age() -> None:
    jobs = [
        job("young", "queued", 1, created_at=3.0),
        job("old", "queued", 1, created_at=2.0),
        job("urgent", "queued", 1, created_at=9.0, priority=1),
    ]
    assert starting(jobs, Quota()) == ["urgent", "old", "young"]


def test_job_that_does_not_fit_holds_back_those_behind_it() -> None:
    jobs = [
        job("running", "running", 3),
        job("big", "queued", 3, created_at=2.0),
        job("small", "queued", 1, created_at=3.0),
    ]
    found = places(jobs, Quota(max_replicas=4))
    assert found[0].waits_for == "3 replicas; 3 of 4 are held by running"
    assert found[1].waits_for == "job big, which is before it in the queue"
    assert starting([*jobs[1:], job("running", "paused", 3)], Quota(max_replicas=4)) == [
        "big",
        "small",
    ]


def test_owner_over_its_own_limit_lets_others_pass() -> None:
    jobs = [
        job("a-1", "running", 2, owner="a"),
        job("a-2", "queued", 1, owner="a", created_at=2.0),
        job("b-1", "queued", 1, owner="b", created_at=3.0),
    ]
    found = places(jobs, Quota(by_owner={"a": 2}))
    assert found[0].waits_for == "1 replicas; a holds 2 of its 2 (a-1)"
    assert found[1].waits_for == ""


def test_number_of_jobs_is_bounded_too() -> None:
    jobs = [job("one", "launching", 1), job("two", "queued", 1)]
    assert starting(jobs, Quota(max_jobs=1)) == []
    assert starting(jobs, Quota(max_jobs=2)) == ["two"]


def test_spec_that_could_never_start_is_refused_with_its_pointer() -> None:
    with pytest.raises(SpecInvalidError, match="5 replicas") as caught:
        check_quota(SPECS[5], Quota(max_replicas=4), "")
    assert caught.value.issues[0].pointer == "/policies/p/replicas"
    with pytest.raises(SpecInvalidError, match="API key 'a'"):
        check_quota(SPECS[3], Quota(by_owner={"a": 2}), "a")
    check_quota(SPECS[3], Quota(by_owner={"a": 2}), "b")
    taught = spec(2, teacher="large", teacher_replicas=3)
    with pytest.raises(SpecInvalidError, match="5 replicas") as caught:
        check_quota(taught, Quota(max_replicas=4), "")
    assert caught.value.issues[0].pointer == "/policies/p/teacher_replicas"


@given(
    st.lists(
        st.tuples(st.sampled_from(STATES), st.integers(1, 5), st.integers(-2, 2)), max_size=12
    ),
    st.integers(5, 12),
    st.integers(0, 4),
)
def test_started_jobs_never_exceed_the_quota(
    drawn: list[tuple[Any, int, int]], max_replicas: int, max_jobs: int
) -> None:
    jobs = [
        job(f"j{i}", state, replicas, priority=priority, created_at=float(i))
        for i, (state, replicas, priority) in enumerate(drawn)
    ]
    held = [j for j in jobs if j.state in HOLDING]
    found = places(jobs, Quota(max_replicas, max_jobs))
    started = [place.job for place in found if not place.waits_for]
    assert {p.job.job_id for p in found} == {j.job_id for j in jobs if j.state == "queued"}
    if started:
        assert sum(j.replicas for j in [*held, *started]) <= max_replicas
        assert not max_jobs or len(held) + len(started) <= max_jobs
    order = [(-p.job.priority, p.job.created_at) for p in found]
    assert order == sorted(order)
