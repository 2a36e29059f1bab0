import pytest

from troupe.algorithms.remax import Remax
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec


def _group(*members: tuple[int, float, bool]) -> GroupOutcome:
    """Members are (trajectory, return, is greedy)."""
    found = [
        Sample(i, reward, 3, False, trajectory=trajectory, is_baseline=greedy)
        for i, (trajectory, reward, greedy) in enumerate(members)
    ]
    return GroupOutcome("g", "planner", 0, found)


def test_remax_when_worked_by_hand_then_the_greedy_return_is_taken_off() -> None:
    # Trajectory 0 took two turns; the greedy one gets nothing.
    group = _group((0, 1.0, False), (0, 1.0, False), (1, 0.0, False), (2, 0.25, True))
    assert Remax(AlgorithmSpec()).advantages(group) == [0.75, 0.75, -0.25, 0.0]


def test_remax_when_only_the_greedy_return_differs_then_all_samples_teach() -> None:
    group = _group((0, 1.0, False), (1, 1.0, False), (2, 0.0, True))
    assert Remax(AlgorithmSpec()).advantages(group) == [1.0, 1.0, 0.0]


def test_remax_when_scaled_then_each_trajectory_counts_once_in_the_deviation() -> None:
    # Returns 1 and 0 of the two trajectories: deviation sqrt(1/2), whatever their turns.
    group = _group((0, 1.0, False), (0, 1.0, False), (1, 0.0, False), (2, 0.5, True))
    half = 0.5 / 0.5**0.5
    got = Remax(AlgorithmSpec(scale="std")).advantages(group)
    assert got == pytest.approx([half, half, -half, 0.0], abs=1e-5)


def test_remax_when_scaled_and_all_samples_return_the_same_then_nothing_divides() -> None:
    group = _group(*[(i, 1.0, False) for i in range(4)], (4, 0.0, True))
    assert Remax(AlgorithmSpec(scale="std")).advantages(group) == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_remax_when_the_agent_never_acted_greedily_then_it_has_nothing_to_learn() -> None:
    assert Remax(AlgorithmSpec()).advantages(_group((0, 1.0, False), (1, 0.0, False))) == [0, 0]


def test_remax_sampler_when_made_then_plays_one_greedy_episode_more() -> None:
    sampler = Remax(AlgorithmSpec(group_size=4)).sampler()
    assert (sampler.num_trajectories, sampler.num_baselines) == (4, 1)
