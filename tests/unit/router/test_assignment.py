"""What processes work on."""

from dataclasses import replace
from pathlib import Path

from troupe.api.router.v1 import router_pb2 as pb
from troupe.spec import parse_spec
from troupe_router.jobs.record import JobRecord
from troupe_router.members.assignment import assign
from troupe_router.members.store import Member


def job(job_id: str, *, model: str = "", **replicas: int) -> JobRecord:
    policies = replicas or {"p": 1}
    agents = {f"agent-{name}": {"policy": name} for name in policies}
    document = {
        "name": "t",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": list(agents)},
        "agents": agents,
        "policies": {n: {"model": model or n, "replicas": k} for n, k in policies.items()},
    }
    return JobRecord(job_id, parse_spec(document), Path("runs"), "running", created_at=1.0)


def per_policy(job_id: str, **replicas: int) -> JobRecord:
    found = job(job_id, **replicas)
    trainer = found.spec.trainer.model_copy(update={"per_policy": True})
    return replace(found, spec=found.spec.model_copy(update={"trainer": trainer}))


def replica(name: str, kind: int, *, job_id: str = "", life: str = "1") -> pb.Replica:
    return pb.Replica(replica_id=name, kind=kind, address="h:1", job_id=job_id, incarnation=life)


TRAINER, ROLLOUT, ENV = (
    pb.REPLICA_KIND_TRAINER,
    pb.REPLICA_KIND_ROLLOUT,
    pb.REPLICA_KIND_ENV,
)


def test_trainer_gets_the_oldest_job_without_one() -> None:
    jobs = [job("a"), job("b")]
    taken = [Member(replica("t0", TRAINER), "a")]
    assert assign(replica("t1", TRAINER), jobs, []).job.job_id == "a"
    assert assign(replica("t1", TRAINER), jobs, taken).job.job_id == "b"
    assert assign(replica("t1", TRAINER, job_id="a"), jobs, taken) is None


def test_rollout_gets_the_policy_that_lacks_most() -> None:
    jobs = [job("a", p=2, q=3)]
    members = [
        Member(replica("r0", ROLLOUT), "a", ("q",)),
        Member(replica("r1", ROLLOUT), "a", ("q",)),
    ]
    assert assign(replica("r2", ROLLOUT), jobs, members).policies == ("p",)


def test_rollout_when_policies_share_a_base_then_it_gets_them_all() -> None:
    jobs = [job("a", model="m", coder=1, tester=2)]
    first = [Member(replica("r0", ROLLOUT), "a", ("coder", "tester"))]
    both = [*first, Member(replica("r1", ROLLOUT), "a", ("coder", "tester"))]
    for living in ([], first):
        work = assign(replica("r2", ROLLOUT), jobs, living)
        assert work and work.policies == ("coder", "tester")
    assert assign(replica("r2", ROLLOUT), jobs, both) is None


def test_rollout_when_it_has_loaded_one_of_two_policies_then_it_is_known_for_both() -> None:
    known = replica("r0", ROLLOUT)
    known.policies.append(pb.ReplicaPolicy(policy="coder"))
    jobs = [job("a", model="m", coder=1, tester=1, other=1), job("b")]
    assert assign(known, jobs, []).policies == ("coder", "tester", "other")


def test_rollout_that_nothing_needs_gets_nothing() -> None:
    members = [Member(replica("r0", ROLLOUT), "a", ("p",))]
    assert assign(replica("r1", ROLLOUT), [job("a")], members) is None


def test_rollout_named_for_a_policy_gets_it() -> None:
    named = replica("a-rollout-q-0", ROLLOUT, job_id="a")
    assert assign(named, [job("a", p=9, q=1)], []).policies == ("q",)


def test_rollout_that_a_router_forgot_keeps_the_policy_that_it_holds() -> None:
    known = replica("r0", ROLLOUT)
    known.policies.append(pb.ReplicaPolicy(policy="q"))
    assert assign(known, [job("a", p=9, q=1)], []).policies == ("q",)


def test_same_life_keeps_its_work_and_a_new_life_asks_again() -> None:
    jobs = [job("a"), job("b")]
    members = [Member(replica("e0", ENV), "b"), Member(replica("e1", ENV), "b")]
    assert assign(replica("e0", ENV), jobs, members).job.job_id == "b"
    assert assign(replica("e0", ENV, life="2"), jobs, members).job.job_id == "a"


def test_held_job_that_is_over_gives_nothing_so_that_the_process_exits() -> None:
    members = [Member(replica("e0", ENV), "gone")]
    assert assign(replica("e0", ENV), [job("b")], members) is None


def test_trainer_of_a_job_with_one_for_each_policy_gets_the_policy_that_lacks_one() -> None:
    jobs = [per_policy("a", p=1, q=1), job("b")]
    taken = [Member(replica("t0", TRAINER), "a", ("p",))]
    first = assign(replica("t1", TRAINER), jobs, [])
    assert (first.job.job_id, first.policies) == ("a", ("p",))
    second = assign(replica("t1", TRAINER), jobs, taken)
    assert (second.job.job_id, second.policies) == ("a", ("q",))
    both = [*taken, Member(replica("t1", TRAINER), "a", ("q",))]
    third = assign(replica("t2", TRAINER), jobs, both)
    assert (third.job.job_id, third.policies) == ("b", ())
    assert assign(replica("t0", TRAINER), jobs, taken).policies == ("p",)


def test_trainer_named_for_a_policy_gets_it_though_another_has_it() -> None:
    named = replica("a-trainer-q-0", TRAINER, job_id="a")
    taken = [Member(replica("t0", TRAINER), "a", ("q",))]
    assert assign(named, [per_policy("a", p=1, q=1)], taken).policies == ("q",)
