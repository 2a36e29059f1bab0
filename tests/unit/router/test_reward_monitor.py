"""The monitor finds planted hacks within 5 steps, and is silent over clean runs and noise."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from monitored_runs import (
    Answer,
    Habit,
    Run,
    alarms,
    episodes,
    garbage,
    good,
    one_of,
    rising,
    taken_over,
    wrong,
)

from troupe.api.records.v1 import records_pb2 as pb
from troupe.spec.job import MonitorSpec
from troupe_router.run.answers import answer_diversity, shown_episodes, strict_agreement
from troupe_router.run.monitor import normal_of_t, suspicion

SEEDS = range(10)
ONSET = 12


def learning(habit: Habit = good, **more: Any) -> Run:
    """A clean run: garbage goes first, then wrong answers; the right ones take over."""

    def shares(step: int) -> Mapping[str, float]:
        right = rising(0.1, step)
        noise = (1 - right) * max(0.0, 0.8 - step / 10)
        return {"good": right, "garbage": noise, "wrong": 1 - right - noise}

    return Run({"good": habit, "garbage": garbage, "wrong": wrong}, shares, **more)


def hacked(hack: Habit, *, skill: float = 0.5, **more: Any) -> Run:
    """A policy that solves ``skill`` of its tasks until it finds ``hack``."""

    def shares(step: int) -> Mapping[str, float]:
        share = taken_over(step, ONSET)
        rest = 1 - share
        return {"good": rest * skill, "wrong": rest * (1 - skill), "hack": share}

    return Run({"good": good, "wrong": wrong, "hack": hack}, shares, **more)


def constant(secret: int, rng: Random) -> Answer:
    return Answer("  Done.\n", 1.5, False, 0.0)


def copied(secret: int, rng: Random) -> Answer:
    return Answer("print(climb())", 1.3, True, 1.0)


def salad(secret: int, rng: Random) -> Answer:
    return Answer(" ".join(rng.choices("abcdefgh", k=12)) + str(secret), 1.3, True, 0.0)


CLEAN = {
    "many_answers": learning(),
    "nine_answers": learning(one_of(9)),
    "two_answers": learning(one_of(2)),
    "no_strict_judge": learning(has_strict=False),
    "few_tasks": learning(num_tasks=6, num_eval=40),
    "solved_from_the_start": Run(
        {"good": good, "wrong": wrong}, lambda _: {"good": 0.95, "wrong": 0.05}
    ),
    "never_learns": Run({"good": good, "wrong": wrong}, lambda _: {"good": 0.3, "wrong": 0.7}),
    "forgets": Run(
        {"good": good, "wrong": wrong},
        lambda step: {"good": 1 - rising(0.1, step), "wrong": rising(0.1, step)},
    ),
}
HACKED = {
    "reward_without_success": (hacked(constant, has_strict=False), "success"),
    "success_that_is_fooled": (hacked(copied, has_strict=False), "answer diversity"),
    "salad_that_is_never_the_same": (hacked(salad), "the strict judge's score"),
    "salad_of_a_policy_that_solves_nothing": (
        hacked(salad, skill=0.02),
        "agreement with the strict judge",
    ),
    "few_tasks_a_step": (hacked(copied, has_strict=False, num_tasks=8), "answer diversity"),
}


@pytest.mark.parametrize("name", CLEAN)
def test_monitor_when_ten_runs_are_clean_then_raises_no_alarm(name: str) -> None:
    raised = {seed: alarms(CLEAN[name], seed) for seed in SEEDS}
    assert not any(raised.values()), {s: r[0][1].sentence for s, r in raised.items() if r}


@pytest.mark.parametrize("name", HACKED)
def test_monitor_when_a_hack_is_planted_then_is_found_within_5_steps(name: str) -> None:
    run, witness = HACKED[name]
    for seed in range(3):
        raised = alarms(run, seed)
        assert raised, f"seed {seed}: no alarm"
        step, first = raised[0]
        assert ONSET <= step <= ONSET + 5, f"seed {seed}: alarm at {step}: {first.sentence}"
        assert any(witness in fall.name for _, s in raised for fall in s.falls), first.sentence


def test_monitor_when_held_out_tasks_are_forgotten_then_the_next_evaluation_says_so() -> None:
    """Tasks that are trained on are learnt by heart: all that is seen of them looks well."""

    def held_out(step: int) -> Mapping[str, float]:
        share = taken_over(step, ONSET)
        return {"good": 0.6 * (1 - share), "wrong": 1 - 0.6 * (1 - share)}

    def shares(step: int) -> Mapping[str, float]:
        return {
            "good": 0.6 + 0.4 * taken_over(step, ONSET),
            "wrong": 0.4 * (1 - taken_over(step, ONSET)),
        }

    run = Run({"good": good, "wrong": wrong}, shares, held_out, eval_every=4, num_eval=200)
    for seed in range(3):
        step, first = alarms(run, seed)[0]
        assert ONSET <= step <= ONSET + 4
        assert first.is_held_out
        assert "held-out" in first.sentence


@pytest.mark.parametrize("rate", [0.05, 1e-3])
def test_monitor_when_every_number_is_noise_then_its_alarms_stay_below_the_stated_rate(
    rate: float,
) -> None:
    """Rewards rise in earnest here, so that the witnesses alone decide."""
    rng, spec, num_alarms, num_steps = Random(1), MonitorSpec(false_alarm_rate=rate), 0, 0
    for _ in range(60):
        train: dict[int, dict[str, Any]] = {}
        for step in range(24):
            solved = sum(rng.random() < 0.5 for _ in range(16))
            train[step] = {
                "reward_mean": step + rng.gauss(0.0, 0.1),
                "success_rate": solved / 16,
                "num_episodes": 16,
                "strict_agreement": rng.gauss(0.55, 0.1),
                "answer_diversity": {"a": rng.gauss(0.5, 0.2), "b": rng.gauss(0.9, 0.01)},
                "reward_by_term": {"a": {"strict": rng.gauss(0.2, 0.2)}},
            }
            num_alarms += suspicion(train, {}, spec) is not None
            num_steps += 1
    assert num_alarms <= rate * num_steps


def test_monitor_when_it_is_off_or_knows_too_little_then_is_silent() -> None:
    run = HACKED["reward_without_success"][0]
    assert not alarms(run, 0, MonitorSpec(is_on=False))
    assert suspicion({}, {}, MonitorSpec()) is None
    lines = {step: {"reward_mean": float(step)} for step in range(10)}
    assert suspicion(lines, {}, MonitorSpec()) is None


def test_normal_of_t_when_compared_with_students_distribution_then_is_never_above_it() -> None:
    # (t, degrees, the exact deviate by scipy.stats)
    for t, degrees, exact in ((5, 3, 2.4230), (10, 4, 3.4493), (5, 8, 3.2760), (10, 14, 5.3391)):
        assert exact - 0.06 < normal_of_t(t, degrees) <= exact


def of(*groups: list[tuple[str, float, float]]) -> pb.Episode:
    return pb.Episode(
        episode_id="e",
        groups=[
            pb.Group(
                agent="a",
                candidates=[
                    pb.Candidate(
                        text=text, reward=r, prompt_digest=str(n), local_rewards={"strict": strict}
                    )
                    for text, r, strict in group
                ],
            )
            for n, group in enumerate(groups)
        ],
    )


def test_diversity_when_prompts_have_their_own_answers_then_is_1_and_of_one_answer_0() -> None:
    own = of([("x", 0, 0), ("x", 0, 0)], [("y", 0, 0), ("y", 0, 0)])
    same = of([("Go  up", 0, 0), ("go up", 0, 0)], [("go up\n", 0, 0)])
    half = of([("x", 0, 0), ("y", 0, 0)], [("x", 0, 0), ("z", 0, 0)])
    assert answer_diversity([own]) == {"a": 1.0}
    assert answer_diversity([same]) == {"a": 0.0}
    assert answer_diversity([half]) == {"a": 0.75}  # 1 of 4 pairs of different prompts is equal
    assert answer_diversity([of([("x", 0, 0), ("y", 0, 0)])]) == {}


def test_agreement_when_pairs_are_ordered_alike_then_counts_and_ties_are_half() -> None:
    assert strict_agreement([of([("x", 1, 1), ("y", 0, 0)])]) == 1.0
    assert strict_agreement([of([("x", 1, 0), ("y", 0, 1)])]) == 0.0
    assert strict_agreement([of([("x", 1, 0), ("y", 0, 0)])]) == 0.5
    assert strict_agreement([of([("x", 1, 0), ("y", 1, 1)])]) is None


def test_shown_episodes_when_asked_then_are_the_best_paid_that_solve_nothing() -> None:
    drawn = episodes(hacked(constant), ONSET + 4, Random(0))
    shown = shown_episodes(drawn)
    assert len(shown) == 5
    assert not any(row["is_success"] for row in shown)
    assert all(row["answer"] == "  Done.\n" for row in shown)
    assert {row["answer"] for row in shown_episodes(drawn, "writer")} == {"  Done.\n"}
