"""What several trainers say of a step is what one trainer of all policies would say."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer_data import make_group

from troupe.spec import JobSpec, parse_spec
from troupe_router.run.learned_steps import LearnedSteps, together
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.credit import CreditedGroup, credit
from troupe_trainer.learn.learner import LearnOutcome
from troupe_trainer.learn.learners import Learned
from troupe_trainer.learn.report import step_report, with_phases

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
        with_phases(
            step_report(
                Batch(2, {}, drops[policy], overlap_s),
                only(whole, policy),
                PHASES[policy]["learn"],
                policy=policy,
            ),
            PHASES[policy],
        )
        for policy, overlap_s in (("one", 0.5), ("two", 0.25))
    ]
    found = together(parts)
    assert found.pop("phases") == PHASES["one"]
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if isinstance(value, float):
            assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-12), name
        else:
            assert found[name] == value, name


def part(policy: str, **more: Any) -> dict[str, Any]:
    whole = learned({"one": 1, "two": 1}, 1)
    report = step_report(Batch(2, {}, {}), only(whole, policy), 1.0, policy=policy)
    return {**report, "phases": {"learn": 1.0}, **more}


def test_steps_when_one_policy_has_not_told_then_the_step_is_not_told() -> None:
    steps = LearnedSteps(spec(per_policy=True))
    assert steps.of(2) == {}
    steps.hear(part("two"))
    assert not steps.is_told(2)
    assert steps.of(2)["trained_tokens"] == part("two")["trained_tokens"]
    steps.hear(part("one"))
    assert steps.is_told(2)
    assert not steps.is_told(3)
    told = steps.of(2)
    both = [part(name)["trained_tokens"] for name in AGENTS]
    assert told["trained_tokens"] == sum(both)
    assert told["by_policy"].keys() == AGENTS.keys()
    steps.forget(2)
    assert not steps.is_told(2)


def test_steps_when_there_is_one_trainer_then_its_words_are_the_steps() -> None:
    steps = LearnedSteps(spec())
    steps.hear({"step": 0, "loss": 1.0})
    steps.hear({"step": 0, "loss": 2.0, "phases": {"learn": 1.0}})
    assert steps.is_told(0)
    assert steps.of(0) == {"step": 0, "loss": 2.0, "phases": {"learn": 1.0}}


@pytest.mark.parametrize("tokens", [(30, 10)])
def test_together_when_both_trained_then_means_are_weighted_by_tokens(
    tokens: tuple[int, int],
) -> None:
    parts = [
        part(
            policy,
            trained_tokens=count,
            by_policy={policy: {"loss": loss}},
            ratio_max=loss,
            reward_mean=mean,
            reward_std=0.0,
            counts={"groups": 1, "candidates": num, "advantages": num},
        )
        for policy, count, loss, mean, num in (
            ("one", tokens[0], 1.0, 0.0, 3),
            ("two", 10, 2.0, 1.0, 1),
        )
    ]
    found = together(parts)
    assert found["loss"] == pytest.approx(1.25)
    assert found["ratio_max"] == 2.0
    assert found["reward_mean"] == 0.25
    assert found["reward_std"] == pytest.approx(math.sqrt(3) / 4)  # of 0, 0, 0 and 1
    assert found["tokens_per_s"] == 40.0
