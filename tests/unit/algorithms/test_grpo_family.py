import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.at_grpo import AtGrpo
from troupe.algorithms.contract import CandidateOutcome, GroupOutcome
from troupe.algorithms.grpo import Grpo
from troupe.spec.job import AlgorithmSpec, LossSpec


def _group(*rewards: float) -> GroupOutcome:
    members = [CandidateOutcome(i, r, 3, False, trajectory=i) for i, r in enumerate(rewards)]
    return GroupOutcome("g", "planner", 0, members)


def test_advantages_when_scaled_then_use_the_sample_standard_deviation() -> None:
    # mean 1/4; squares 3 * 1/16 + 9/16 = 3/4; divisor 3 -> std 1/2; (1 - 1/4) / (1/2) = 3/2
    got = AtGrpo(AlgorithmSpec(group_size=4)).advantages(_group(0.0, 0.0, 0.0, 1.0))
    assert got == pytest.approx([-0.5, -0.5, -0.5, 1.5], abs=1e-5)


def test_advantages_when_not_scaled_then_are_centred_rewards() -> None:
    got = AtGrpo(AlgorithmSpec(scale="none")).advantages(_group(0.0, 0.0, 0.0, 1.0))
    assert got == [-0.25, -0.25, -0.25, 0.75]


@pytest.mark.parametrize("scale", ["std", "none"])
def test_advantages_when_rewards_are_equal_then_are_exactly_zero(scale: str) -> None:
    got = Grpo(AlgorithmSpec(scale=scale)).advantages(_group(0.1, 0.1, 0.1))  # type: ignore[arg-type]
    assert got == [0.0, 0.0, 0.0]


def test_grpo_when_trajectories_differ_in_turns_then_each_weighs_once() -> None:
    # Trajectory 0 (reward 1) took one turn, trajectory 1 (reward 0) three: mean 1/2, not 1/4.
    members = [CandidateOutcome(0, 1.0, 3, False, trajectory=0)]
    members += [CandidateOutcome(i, 0.0, 3, False, trajectory=1) for i in (1, 2, 3)]
    got = Grpo(AlgorithmSpec(scale="none")).advantages(GroupOutcome("g", "solver", 0, members))
    assert got == [0.5, -0.5, -0.5, -0.5]


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=16), st.floats(-5, 5))
def test_advantages_when_rewards_shift_then_stay_and_sum_to_zero(
    rewards: list[float], shift: float
) -> None:
    base = group_relative(rewards, "none")
    moved = group_relative([r + shift for r in rewards], "none")
    assert math.fsum(base) == pytest.approx(0.0, abs=1e-9)
    assert moved == pytest.approx(base, abs=1e-7)


def test_samplers_when_built_then_tree_draws_k_and_grpo_plays_k() -> None:
    tree, parallel = AtGrpo(AlgorithmSpec(group_size=5)), Grpo(AlgorithmSpec(group_size=5))
    assert (tree.sampler().num_candidates, tree.sampler().num_trajectories) == (5, 1)
    assert (parallel.sampler().num_candidates, parallel.sampler().num_trajectories) == (1, 5)
    assert tree.sampler().grouping == "observation"
    assert parallel.sampler().grouping == "task"


def test_needs_entropy_when_there_is_a_bonus_then_true() -> None:
    assert not AtGrpo(AlgorithmSpec()).needs_entropy
    assert AtGrpo(AlgorithmSpec(loss=LossSpec(entropy_coef=0.01))).needs_entropy
