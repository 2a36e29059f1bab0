"""What a job waits for, from facts alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.clients.trainer import TrainerStatus
from troupe.runtime.streams.ledger import RoundState
from troupe.spec import parse_spec
from troupe_router.conduct.progress import Facts, explain
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import JobState
from troupe_router.members.store import Member

NOW = 1000.0
ROLLOUT, ENV, TRAINER = (
    pb.ReplicaKind.REPLICA_KIND_ROLLOUT,
    pb.ReplicaKind.REPLICA_KIND_ENV,
    pb.ReplicaKind.REPLICA_KIND_TRAINER,
)
WANTED = {"trainer": 1, "env": 1, "p": 2}


def job(state: JobState = "running", *, step: int = 3, steps: int = 5) -> JobRecord:
    spec = parse_spec(
        {
            "name": "demo",
            "steps": steps,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"], "max_turns": 2},
            "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
            "policies": {"p": {"model": "m", "replicas": 2}},
        }
    )
    return JobRecord("demo-1", spec, Path("runs/demo-1"), state, 100.0, started_at=200.0, step=step)


def member(
    name: str, kind: pb.ReplicaKind, *, in_flight: int = 0, version: int = 3, serves: bool = True
) -> Member:
    held = [pb.ReplicaPolicy(policy="p", active_version=version)] if kind == ROLLOUT else []
    replica = pb.Replica(
        replica_id=name, kind=kind, num_in_flight=in_flight, is_serving=serves, policies=held
    )
    return Member(replica, "demo-1", ("p",) if kind == ROLLOUT else ())


def everybody(*, busy: int = 0, versions: tuple[int, int] = (3, 3)) -> list[Member]:
    return [
        member("r0", ROLLOUT, version=versions[0]),
        member("r1", ROLLOUT, in_flight=busy, version=versions[1]),
        member("e0", ENV),
        member("t0", TRAINER),
    ]


def a_round(done: int, *, round_id: str = "train-00003", step: int = 3) -> RoundState:
    kind = records.ROUND_KIND_EVAL if round_id.startswith("eval") else records.ROUND_KIND_TRAIN
    return RoundState(round_id, kind, step, 8, done, 0, {}, 900.0, False)


def trainer(phase: str, *, for_s: float = 12.0, is_paused: bool = False) -> TrainerStatus:
    return TrainerStatus("demo-1", 3, 5, phase, for_s, {"p": 3}, is_paused)


def test_explain_when_episodes_are_open_then_counts_them_and_names_the_busiest() -> None:
    facts = Facts(job(), everybody(busy=7), WANTED, a_round(5), {"p": 3}, now=NOW)
    found = explain(facts)
    assert (found.phase, found.step, found.since, found.who) == ("play", 3, 900.0, ("r1",))
    assert found.sentence == "Step 4 waits for 3 of 8 episodes; busiest: r1 (7 requests)."


def test_explain_when_a_paused_job_goes_on_then_its_open_step_waits_since_the_new_start() -> None:
    resumed = replace(job(), started_at=990.0)
    for members in (everybody(), everybody()[1:]):
        found = explain(Facts(resumed, members, WANTED, a_round(5), {"p": 3}, now=NOW))
        assert (found.phase, found.since) == ("play", 990.0)


def test_explain_when_a_replica_is_gone_in_mid_play_then_names_the_policy() -> None:
    facts = Facts(job(), everybody()[1:], WANTED, a_round(5), {"p": 3}, now=NOW)
    found = explain(facts)
    assert found.who == ("p",)
    assert "rollout of policy 'p' (1 of 2 serve)" in found.sentence


@pytest.mark.parametrize(
    ("said", "phase"),
    [("device", "learn"), ("learn", "learn"), ("checkpoint", "learn"), ("collect", "collect")],
)
def test_explain_when_the_round_is_complete_then_the_trainer_is_waited_for(
    said: str, phase: str
) -> None:
    facts = Facts(job(), everybody(), WANTED, a_round(8), {"p": 3}, trainer(said), NOW)
    found = explain(facts)
    assert (found.phase, found.since, found.who) == (phase, 988.0, ("t0",))
    assert "12 s so far" in found.sentence


def test_explain_when_weights_are_pushed_then_names_the_replica_that_lags() -> None:
    facts = Facts(
        job(), everybody(versions=(4, 3)), WANTED, a_round(8), {"p": 3}, trainer("publish"), NOW
    )
    found = explain(facts)
    assert (found.phase, found.who) == ("publish", ("r1",))


def test_explain_when_the_evaluation_outlasts_the_learning_then_the_step_waits_for_it() -> None:
    facts = Facts(job(), everybody(), WANTED, a_round(8), {"p": 3}, trainer("evaluation"), NOW)
    found = explain(facts)
    assert found.phase == "play"
    assert found.sentence.startswith("Step 4 waits for the evaluation of its weights (")


def test_explain_when_the_trainer_does_not_answer_then_says_so() -> None:
    facts = Facts(job(), everybody(), WANTED, a_round(8), {"p": 3}, None, NOW, silent_since=990.0)
    found = explain(facts)
    assert "does not answer" in found.sentence and found.who == ("t0",)
    # Its silence counts, not the time that the round was played for.
    assert found.since == 990.0


def test_explain_when_every_trainer_has_told_its_result_then_none_is_waited_for() -> None:
    last = a_round(8, round_id="eval-00005", step=5)
    facts = Facts(job(step=5), everybody()[:3], WANTED, last, {"p": 5}, None, NOW, is_exported=True)
    found = explain(facts)
    assert (found.phase, found.who, found.since) == ("export", ("router",), 0.0)
    assert found.sentence == "All policies are exported; the router closes the job."


def test_explain_when_the_trainer_is_held_then_nothing_is_overdue() -> None:
    facts = Facts(
        job(), everybody(), WANTED, a_round(8), {"p": 3}, trainer("collect", is_paused=True), NOW
    )
    assert explain(facts).phase == "none"


def test_explain_when_launching_then_names_what_is_missing_first() -> None:
    facts = Facts(job("launching", step=0), everybody()[:2], WANTED, None, {}, now=NOW)
    found = explain(facts)
    assert (found.phase, found.who, found.since) == ("launch", ("trainer", "env"), 200.0)
    ready = explain(Facts(job("launching"), everybody(), WANTED, None, {}, now=NOW))
    assert "first version of p" in ready.sentence


def test_explain_when_the_evaluation_is_over_then_the_next_step_opens_or_the_end_comes() -> None:
    over = a_round(8, round_id="eval-00003")
    before = explain(Facts(job(), everybody(), WANTED, over, {"p": 3}, trainer("collect"), NOW))
    assert "about to open" in before.sentence
    last = a_round(8, round_id="eval-00005", step=5)
    facts = Facts(job(step=5), everybody(), WANTED, last, {"p": 5}, trainer("export"), NOW)
    found = explain(facts)
    assert found.phase == "export"
    assert found.sentence.startswith("The job's end waits for the trainer to export")


@pytest.mark.parametrize(
    ("state", "phase"),
    [("queued", "queue"), ("succeeded", "none"), ("failed", "none"), ("cancelling", "none")],
)
def test_explain_when_nothing_runs_then_says_why(state: JobState, phase: str) -> None:
    found = explain(Facts(job(state), now=NOW))
    assert found.phase == phase and found.sentence.startswith("The job ")


def test_waiting_when_shown_then_has_seconds_instead_of_an_instant() -> None:
    shown = explain(Facts(job("succeeded"), now=NOW)).to_json()
    assert shown["for_s"] is None and shown["who"] == [] and "since" not in shown


def test_explain_when_policies_have_trainers_then_names_the_one_furthest_behind() -> None:
    def learns(name: str, policy: str) -> Member:
        return Member(pb.Replica(replica_id=name, kind=TRAINER), "demo-1", (policy,))

    members = [*everybody()[:3], learns("t-p", "p"), learns("t-q", "q")]
    facts = Facts(job(), members, WANTED, a_round(8), {"p": 3}, trainer("learn"), NOW, slowest="q")
    found = explain(facts)
    assert (found.phase, found.who) == ("learn", ("t-q",))
    assert found.sentence == ("Step 4 waits for the trainer of policy 'q' to learn (12 s so far).")
    silent = explain(replace(facts, trainer=None, slowest="p"))
    assert silent.who == ("t-p",)
    assert "the trainer of policy 'p', which does not answer" in silent.sentence
