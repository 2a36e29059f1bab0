"""What several trainers say of a step is what one trainer of all policies would say."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from trainer_data import make_group

from troupe.api.records.v1.records_pb2 import Event
from troupe.runtime.step_report.trainer import TrainerPart, over_policies
from troupe.spec import JobSpec, parse_spec
from troupe_router.jobs.record import JobRecord
from troupe_router.run.learned_steps import LearnedSteps, ReportsByLife
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learner import LearnOutcome
from troupe_trainer.learn.learners import Learned
from troupe_trainer.learn.report import step_report
from troupe_trainer.samples import CreditedGroup, credit

AGENTS = {"one": "tool", "two": "planner"}
PHASES = {"one": {"collect": 9.0, "learn": 1.0, "publish": 3.0}, "two": {"learn": 2.0}}


def spec(**trainer: bool) -> JobSpec:
    return parse_spec(
        {
            "name": "two",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["tool", "planner"]},
            "agents": {agent: {"policy": policy} for policy, agent in AGENTS.items()},
            "policies": {"one": {"model": "m"}, "two": {"model": "n"}},
            "trainer": trainer,
        }
    )


def credited(policy: str, count: int, seed: int) -> list[CreditedGroup]:
    rng = random.Random(f"{policy}/{seed}")
    found: list[CreditedGroup] = []
    for task in range(count):
        group = make_group(rng, task=task, agent=AGENTS[policy], step=2)
        group.policy = policy
        group.policy_version = rng.choice([1, 2])
        advantages = [rng.choice([0.0, rng.random() - 0.5]) for _ in group.candidates]
        found.append(credit(group, advantages, 1.0))
    return found


def learned(counts: dict[str, int], seed: int) -> Learned:
    groups = {policy: credited(policy, count, seed) for policy, count in counts.items()}
    outcomes: dict[str, LearnOutcome] = {}
    for policy, own in groups.items():
        rng = random.Random(seed)
        names = ["loss", "entropy", "ratio_max", "grad_norm"] + ["kl_ref"] * (policy == "two")
        tokens = sum(group.num_tokens for group in own)
        metrics = {name: rng.random() if tokens else 0.0 for name in names}
        outcomes[policy] = LearnOutcome(metrics, tokens, 100 + seed if policy == "one" else None)
    return Learned(groups, outcomes)


def only(whole: Learned, policy: str) -> Learned:
    return Learned({policy: whole.credited[policy]}, {policy: whole.outcomes[policy]})


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 99))
def test_together_when_each_policy_has_a_trainer_then_as_one_trainer_of_all(
    one: int, two: int, seed: int
) -> None:
    whole = learned({"one": one, "two": two}, seed)
    drops = {"one": {"late": 1}, "two": {"late": 2, "foreign": 1}}
    wanted = step_report(Batch(2, {}, {"foreign": 1, "late": 3}, 0.5), whole, 2.0)
    parts = [
        replace(
            step_report(
                Batch(2, {}, drops[policy], overlap_s),
                only(whole, policy),
                PHASES[policy]["learn"],
                policy=policy,
            ),
            phases=PHASES[policy],
        )
        for policy, overlap_s in (("one", 0.5), ("two", 0.25))
    ]
    read = [TrainerPart.from_wire(json.loads(json.dumps(part.to_wire()))) for part in parts]
    assert read == parts
    merged = over_policies(read)
    assert merged.phases == PHASES["one"]
    found, expected = merged.to_line(), wanted.to_line()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, float):
            assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-12), name
        else:
            assert found[name] == value, name


def part(policy: str) -> TrainerPart:
    whole = learned({"one": 1, "two": 1}, 1)
    report = step_report(Batch(2, {}, {}), only(whole, policy), 1.0, policy=policy)
    return replace(report, phases={"learn": 1.0})


def test_report_when_written_then_a_router_of_the_version_before_reads_it_too() -> None:
    report, wire = part("one"), part("one").to_wire()
    assert wire["reward_mean"] == wire["trained_reward_mean"] == report.trained_reward_mean
    assert wire["tokens_per_s"] == report.trained_tokens_per_s
    assert wire["reward_by_agent"] == report.trained_reward_by_agent
    former = {k: v for k, v in wire.items() if not k.startswith("trained_r")}
    assert TrainerPart.from_wire(former) == TrainerPart.from_wire(wire) == report


def test_steps_when_one_policy_has_not_told_then_the_step_is_not_told() -> None:
    steps = LearnedSteps(spec(per_policy=True))
    assert steps.of(2) is None
    steps.add(part("two").to_wire())
    assert not steps.is_reported(2)
    assert (partly := steps.of(2)) is not None
    assert partly.trained_tokens == part("two").trained_tokens
    steps.add(part("one").to_wire())
    assert steps.is_reported(2)
    assert not steps.is_reported(3)
    assert (both := steps.of(2)) is not None
    assert both.trained_tokens == sum(part(name).trained_tokens or 0 for name in AGENTS)
    assert both.by_policy.keys() == AGENTS.keys()
    steps.forget(2)
    assert not steps.is_reported(2)


def test_steps_when_there_is_one_trainer_then_its_words_are_the_steps() -> None:
    steps = LearnedSteps(spec())
    steps.add({"step": 0, "loss": 1.0})
    steps.add({"step": 0, "loss": 2.0, "phases": {"learn": 1.0}})
    assert steps.is_reported(0)
    assert steps.of(0) == TrainerPart(step=0, loss=2.0, phases={"learn": 1.0})


BEGAN = 1000.0


def by_life(*said: tuple[str, float, int]) -> ReportsByLife:
    """Of a job whose life began at BEGAN; ``said``: the source, time and step of each event."""
    job = JobRecord("j", spec(), Path("runs/j"), "running", 1.0, started_at=BEGAN, life=2)
    reports = ReportsByLife(job)
    for source, at, step in said:
        type = "step.learned" if source == "trainer" else "job.state"
        event = Event(type=type, source=source, occurred_at=at, event_id=f"learned-{step}")
        reports.add(event, {"step": step, "loss": at})
    return reports


def test_reports_when_a_step_is_learned_again_then_those_of_earlier_lives_do_not_count() -> None:
    reports = by_life(("trainer", 900.0, 7), ("trainer", 950.0, 8))
    assert not reports.of_round(BEGAN + 1).is_reported(8)
    assert reports.of_round(BEGAN - 1).is_reported(8)
    assert reports.earlier_ids(8) == ["learned-8"]
    reports = by_life(("trainer", 900.0, 7), ("trainer", 950.0, 8), ("trainer", 1050.0, 8))
    assert (found := reports.of_round(BEGAN + 1).of(8)) is not None
    assert found.loss == 1050.0
    assert reports.earlier_ids(8) == []


def test_reports_when_the_trainers_clock_is_behind_then_the_order_of_the_events_tells() -> None:
    reports = by_life(("router", BEGAN, 0), ("trainer", 990.0, 8))
    assert reports.of_round(BEGAN + 1).is_reported(8)
    assert reports.earlier_ids(8) == []
