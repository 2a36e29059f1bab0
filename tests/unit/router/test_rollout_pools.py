"""Which policies share rollout replicas: one function for router, launchers, engine and plan."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.errors import ConflictError
from troupe.spec import JobSpec, parse_spec
from troupe.spec.pools import num_replicas, num_serving, pool_of, rollout_pools
from troupe.spec.resuming import check_same_job
from troupe_router.jobs.processes import components, kind_of, needs
from troupe_router.jobs.record import JobRecord, record_from_fields
from troupe_router.settings import RouterSettings

LORA, FULL = {"kind": "lora"}, {"kind": "full"}


def spec(policies: dict[str, Any], **more: Any) -> JobSpec:
    agents = {f"agent-{name}": {"policy": name} for name in policies}
    document: dict[str, Any] = {
        "name": "t",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": list(agents)},
        "agents": agents,
        "policies": policies,
    }
    return parse_spec(document | more)


def shape(found: JobSpec) -> list[tuple[str, ...]]:
    return [pool.policies for pool in rollout_pools(found)]


def test_pools_when_five_adapters_have_one_base_then_one_pool() -> None:
    found = spec({name: {"model": "m", "train": LORA} for name in "abcde"})
    [pool] = rollout_pools(found)
    assert (pool.name, pool.policies, pool.replicas) == ("a", tuple("abcde"), 1)
    assert str(pool) == "rollout of policies 'a', 'b', 'c', 'd', 'e'"


def test_pools_when_base_dtype_or_training_differ_then_pools_of_their_own() -> None:
    found = spec(
        {
            "a": {"model": "m"},
            "b": {"model": "m", "dtype": "bfloat16"},
            "c": {"model": "n"},
            "d": {"model": "m", "train": FULL},
            "e": {"model": "m", "train": FULL},
            "f": {"model": "m", "train": {"kind": "lora", "rank": 64}},
        }
    )
    assert shape(found) == [("a", "f"), ("b",), ("c",), ("d",), ("e",)]
    assert pool_of(found, "f").name == "a"


def test_pools_when_policies_ask_for_different_replicas_then_the_most_counts() -> None:
    found = spec({"a": {"model": "m", "replicas": 2}, "b": {"model": "m", "replicas": 5}})
    assert num_replicas(found) == pool_of(found, "a").replicas == 5


def test_pools_when_the_spec_says_per_policy_then_nothing_is_shared() -> None:
    policies = {"a": {"model": "m"}, "b": {"model": "m"}}
    assert shape(spec(policies, rollout={"per_policy": True})) == [("a",), ("b",)]


def test_spec_when_rollout_is_not_given_then_it_is_not_written() -> None:
    assert "rollout" not in spec({"a": {"model": "m"}}).model_dump(mode="json")


@given(
    st.lists(
        st.tuples(st.sampled_from(["m", "n"]), st.booleans(), st.booleans(), st.integers(1, 4)),
        min_size=1,
        max_size=6,
    )
)
def test_pools_of_any_spec_serve_each_policy_once_with_enough_replicas(rows: Any) -> None:
    policies = {
        f"p{i}": {
            "model": model,
            "train": LORA if is_lora else FULL,
            "dtype": "bfloat16" if is_small else "float32",
            "replicas": replicas,
        }
        for i, (model, is_lora, is_small, replicas) in enumerate(rows)
    }
    found = spec(policies)
    pools = rollout_pools(found)
    assert sorted(name for pool in pools for name in pool.policies) == sorted(policies)
    for pool in pools:
        of = [found.policies[name] for name in pool.policies]
        assert {(p.model, p.dtype) for p in of} == {(pool.model, pool.dtype)}
        assert len(of) == 1 or all(p.train.kind == "lora" for p in of)
        assert pool.replicas >= max(p.replicas for p in of)
    processes = [c.name for c in components("j-1", found, RouterSettings(), router="h:1")]
    rollouts = [name for name in processes if name.startswith("rollout-")]
    assert rollouts == [f"rollout-{p.name}-{i}" for p in pools for i in range(p.replicas)]
    assert all(kind_of(f"j-1-{name}", "j-1", found) for name in rollouts)


def test_processes_when_a_teacher_is_served_then_replicas_of_its_own_model_are_among_them() -> None:
    taught = {"model": "m", "teacher": "large", "teacher_replicas": 2}
    found = spec({"a": taught}, algorithm={"kind": "distill", "group_size": 1})
    processes = components("j-1", found, RouterSettings(), router="h:1")
    models = {c.name: c.traits["model"] for c in processes if c.name.startswith("rollout-")}
    served = {"rollout-a-0": "m", "rollout-a-teacher-0": "large", "rollout-a-teacher-1": "large"}
    assert models == served
    assert all(kind_of(f"j-1-{name}", "j-1", found) for name in models)
    [trainer] = [c.name for c in processes if c.name.startswith("trainer-")]
    assert trainer == "trainer-0"
    alone = needs(found, RouterSettings(launcher="none"))
    assert alone.rollouts == {"a": 1, "a-teacher": 1}


def test_needs_when_nothing_is_launched_then_one_replica_of_each_pool() -> None:
    found = spec({"a": {"model": "m"}, "b": {"model": "m"}, "c": {"model": "n", "replicas": 3}})
    assert needs(found, RouterSettings(launcher="none")).rollouts == {"a": 1, "c": 1}


def test_num_serving_counts_replicas_that_serve_the_whole_pool() -> None:
    [pool] = rollout_pools(spec({"a": {"model": "m"}, "b": {"model": "m"}}))
    assert num_serving(pool, [("a", "b"), ("a",), (), ("b", "a", "c")]) == 2


@pytest.mark.parametrize("is_of_before", [True, False])
def test_record_when_a_version_without_pools_began_the_job_then_it_keeps_its_replicas(
    *, is_of_before: bool
) -> None:
    two = spec({"a": {"model": "m"}, "b": {"model": "m"}})
    fields = JobRecord("j-1", two, Path("runs"), "running", created_at=1.0).to_fields()
    if is_of_before:
        del fields["pools"]
    record = record_from_fields({key.encode(): value.encode() for key, value in fields.items()})
    assert record.replicas == (2 if is_of_before else 1)
    assert shape(record.spec) == ([("a",), ("b",)] if is_of_before else [("a", "b")])
    assert "rollout" not in record.spec_as_begun


def test_resume_when_a_part_is_left_out_or_added_then_it_is_refused_by_name() -> None:
    policies = {"a": {"model": "m"}, "b": {"model": "m"}}
    shared, apart = spec(policies), spec(policies, rollout={"per_policy": True})
    for stored, wanted in ((shared, apart), (apart, shared)):
        with pytest.raises(ConflictError, match="resumed with another /rollout"):
            check_same_job(Path("j-1"), stored, wanted)
    check_same_job(Path("j-1"), apart, apart)
