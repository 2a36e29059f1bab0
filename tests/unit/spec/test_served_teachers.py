"""A teacher that rollout replicas serve: its pool, its room on GPUs, and what is refused."""

from typing import Any

import pytest

from troupe.runtime.engines.presets import find_preset
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe.spec.layout import colocated_issues, plan_layout, with_layout
from troupe.spec.memory import GB, trainer_peak
from troupe.spec.pools import num_replicas, rollout_pools
from troupe.spec.step_cost import Rates, step_cost

SMALL, LARGE = "Qwen/Qwen3-1.7B", "Qwen/Qwen3-8B"


def job(policy: dict[str, Any] | None = None, **more: Any) -> JobSpec:
    taught = {"model": SMALL, "dtype": "bfloat16", "teacher": LARGE, "teacher_replicas": 2}
    body: dict[str, Any] = {
        "name": "taught",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool"]},
        "agents": {"tool": {"policy": "p"}},
        "policies": {"p": taught | (policy or {})},
        "algorithm": {"kind": "distill", "group_size": 4},
    }
    return parse_spec(body | more)


def refusals(**parts: Any) -> dict[str, str]:
    with pytest.raises(SpecInvalidError) as refused:
        job(**parts)
    return {issue.pointer: issue.message for issue in refused.value.issues}


def test_teacher_when_it_is_served_then_has_a_pool_and_is_no_policy_of_the_job() -> None:
    spec = job()
    student, teacher = rollout_pools(spec)
    assert (student.policies, student.model, student.replicas) == (("p",), SMALL, 1)
    assert (teacher.policies, teacher.model, teacher.replicas) == (("p-teacher",), LARGE, 2)
    assert teacher.dtype == "bfloat16"
    assert num_replicas(spec) == 3
    assert list(spec.policies) == ["p"]
    assert not any(job({"teacher_replicas": None}).teachers())
    assert spec.models() == {"/policies/p/model": SMALL, "/policies/p/teacher": LARGE}
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_teacher_when_a_frozen_partner_or_another_student_has_it_too_then_one_server_will_do() -> (
    None
):
    taught = job().policies["p"].model_dump(exclude={"teacher_replicas"})
    policies = {
        "p": taught | {"teacher_replicas": 1},
        "q": taught | {"teacher_replicas": 3},
        "big": {"model": LARGE, "dtype": "bfloat16", "frozen": True},
    }
    agents = {name: {"policy": name} for name in policies}
    found = job(agents=agents, policies=policies, workflow={"order": list(agents)})
    pools = {pool.policies: pool.replicas for pool in rollout_pools(found)}
    assert pools == {("p", "q"): 1, ("big", "p-teacher", "q-teacher"): 3}
    apart = found.model_copy(update={"rollout": type(found.rollout)(per_policy=True)})
    assert len(rollout_pools(apart)) == 5


def test_trainer_when_its_teacher_is_served_then_has_memory_as_without_one() -> None:
    def peak(**policy: Any) -> float:
        found = trainer_peak(job(policy), tokens=4096, checkpoint_activations=True)
        assert found is not None
        return found

    weights = 2 * find_preset(LARGE).shape.num_parameters()  # type: ignore[union-attr]
    assert peak() < peak(teacher_replicas=None) - 0.9 * weights
    assert peak() == peak(teacher=SMALL)


def test_layout_when_a_teacher_is_served_then_it_has_devices_and_is_not_on_the_trainers() -> None:
    layout = plan_layout(job(), 8)
    seats = {server.pool.name: len(server.gpus) for server in layout.servers}
    assert seats["p-teacher"] >= 2
    assert layout.servers[1].peak_bytes > 16 * GB  # type: ignore[operator]
    kept = with_layout(job(), layout)
    assert kept.policies["p"].teacher_replicas == seats["p-teacher"]
    assert plan_layout(kept, 8) == layout
    cost = step_cost(kept, layout, {"p": 10**6})
    assert cost is not None
    assert cost.play_s > 0


def test_step_when_the_teachers_servers_are_the_slowest_then_they_set_its_time() -> None:
    spec = job({"teacher_replicas": 1})
    rates = Rates(memory_bytes_per_s=1e18, flops=1e14, mfu=0.5)
    cost = step_cost(spec, plan_layout(spec, 3), {"p": 10**6}, rates)
    assert cost is not None
    forward = 2 * 10**6 * find_preset(LARGE).shape.num_parameters()  # type: ignore[union-attr]
    assert cost.play_s == pytest.approx(forward / 5e13, rel=1e-3)


def test_device_when_server_and_trainer_take_turns_then_a_teachers_server_is_refused() -> None:
    [issue] = colocated_issues(job({"teacher_replicas": 1}))
    assert issue.pointer == "/policies/p/teacher_replicas"
    assert "leave it out, and the trainer has the teacher" in issue.message
    assert colocated_issues(job({"teacher_replicas": None})) == []


@pytest.mark.parametrize(
    ("parts", "pointer", "words"),
    [
        ({"policy": {"teacher": None}}, "/policies/p/teacher_replicas", "no teacher to serve"),
        ({"sampling": {"temperature": 0.7}}, "/sampling/temperature", "temperature 1 alone"),
        (
            {"agents": {"tool": {"policy": "p", "sampling": {"temperature": 0.9}}}},
            "/agents/tool/sampling/temperature",
            "temperature 1 alone",
        ),
        (
            {
                "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p-teacher"}},
                "workflow": {"order": ["tool", "planner"]},
                "policies": {
                    "p": {"model": SMALL, "teacher": LARGE, "teacher_replicas": 1},
                    "p-teacher": {"model": LARGE, "frozen": True},
                },
            },
            "/policies/p/teacher_replicas",
            "as a policy is called; rename it",
        ),
        ({"policy": {"teacher_replicas": 0}}, "/policies/p/teacher_replicas", ""),
    ],
)
def test_spec_when_a_served_teacher_can_not_be_then_says_where(
    parts: dict[str, Any], pointer: str, words: str
) -> None:
    found = refusals(**parts)
    assert list(found) == [pointer]
    assert words in found[pointer]


def test_temperature_when_the_trainer_has_the_teacher_or_another_policy_learns_then_is_free() -> (
    None
):
    assert job({"teacher_replicas": None}, sampling={"temperature": 0.7}).policies
    assert job(eval={"sampling": {"temperature": 0.0}}).policies
