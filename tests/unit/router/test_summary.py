"""summary.json, by hand."""

from pathlib import Path
from typing import Any

from troupe.spec import parse_spec
from troupe_router.jobs.record import JobRecord
from troupe_router.run.summary import summarize


def job(**more: Any) -> JobRecord:
    document: dict[str, Any] = {
        "name": "t",
        "steps": 3,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
    }
    spec = parse_spec({**document, **more})
    return JobRecord("t-1", spec, Path("/nowhere"), "running", created_at=1.0)


def line(step: int, wall_s: float, busy_s: float, *, interrupted: bool) -> dict[str, Any]:
    return {
        "kind": "train",
        "step": step,
        "wall_s": wall_s,
        "phases": {"generate": busy_s, "learn": 0.0},
        "interrupted": interrupted,
        "groups_trained": None,
    }


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return summarize(job(), lines, None, state="succeeded", reason="", commit=None)


def test_truncated_steps_when_most_answers_were_cut_off_then_are_counted() -> None:
    shares = [1.0, 0.5, 0.49, None, 0.0]
    steps = [
        {**line(step, 1.0, 1.0, interrupted=False), "truncated_fraction": share}
        for step, share in enumerate(shares)
    ]
    assert summary(steps)["steps_truncated"] == 2


def test_groups_when_many_have_no_variance_then_are_counted() -> None:
    steps = [
        {**line(step, 1.0, 0.5, interrupted=False), "groups_zero_variance": 3} for step in range(2)
    ]
    assert summary(steps)["groups_zero_variance"] == 6


def test_busy_ratio_when_a_step_was_interrupted_then_it_only_counts_in_the_second_one() -> None:
    found = summary(
        [
            line(0, 10.0, 8.0, interrupted=False),
            line(1, 30.0, 6.0, interrupted=True),
            line(2, 10.0, 6.0, interrupted=False),
        ]
    )
    assert found["busy_ratio"] == 0.7
    assert found["busy_ratio_with_interruptions"] == 0.4
    assert (found["steps"], found["steps_interrupted"], found["steps_wall_s"]) == (3, 1, 50.0)


def test_busy_ratio_when_every_step_was_interrupted_then_it_is_unknown() -> None:
    found = summary([line(0, 10.0, 5.0, interrupted=True)])
    assert found["busy_ratio"] is None
    assert found["busy_ratio_with_interruptions"] == 0.5


def test_artifacts_when_there_is_one_policy_then_are_the_summarys_own() -> None:
    result = {"policies": {"p": {"adapter": "a", "merged": "m"}}}
    found = summarize(job(), [], result, state="succeeded", reason="", commit=None)
    assert (found["adapter"], found["merged"]) == ("a", "m")
    assert found["policies"] == result["policies"]


def test_artifacts_when_there_are_several_policies_then_each_has_its_own_alone() -> None:
    two = job(
        agents={"tool": {"policy": "p"}, "planner": {"policy": "q"}},
        policies={"p": {"model": "m"}, "q": {"model": "n"}},
    )
    result = {"policies": {p: {"adapter": None, "merged": f"{p}/merged"} for p in ("p", "q")}}
    found = summarize(two, [], result, state="succeeded", reason="", commit=None)
    assert (found["adapter"], found["merged"]) == (None, None)
    assert found["policies"] == result["policies"]
