import pytest
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec

from median_grpo import MedianGrpo, Params


def group(*rewards: float) -> GroupOutcome:
    members = [Sample(i, reward, 3, False) for i, reward in enumerate(rewards)]
    return GroupOutcome("g", "planner", 0, members)


def test_advantages_when_one_candidate_was_lucky_then_the_others_are_not_blamed() -> None:
    found = MedianGrpo(AlgorithmSpec()).advantages(group(0.0, 0.0, 0.0, 4.0))
    assert found == pytest.approx([0.0, 0.0, 0.0, 4.0], abs=1e-4)


def test_advantages_when_not_scaled_then_are_distances_from_the_median() -> None:
    found = MedianGrpo(AlgorithmSpec(scale="none")).advantages(group(1.0, 2.0, 5.0))
    assert found == [-1.0, 0.0, 3.0]


def test_advantages_when_rewards_are_equal_then_are_zero() -> None:
    assert MedianGrpo(AlgorithmSpec()).advantages(group(0.5, 0.5)) == [0.0, 0.0]


def test_advantages_when_the_spread_is_noise_then_it_is_not_blown_up() -> None:
    steady = MedianGrpo(AlgorithmSpec(), Params(min_spread=1.0))
    assert steady.advantages(group(0.0, 0.0, 0.1)) == pytest.approx([0.0, 0.0, 0.1], abs=1e-4)
