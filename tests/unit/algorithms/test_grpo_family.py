import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import Needs
from troupe.algorithms.at_grpo import AtGrpo
from troupe.algorithms.dr_grpo import DrGrpo
from troupe.algorithms.dr_mas import DrMas
from troupe.algorithms.grpo import Grpo
from troupe.algorithms.mareinforce import Mareinforce
from troupe.algorithms.maremax import Maremax
from troupe.algorithms.marloo import Marloo
from troupe.algorithms.reinforce_pp import ReinforcePp, ReinforcePpBaseline
from troupe.algorithms.rloo import Rloo
from troupe.candidates import GroupOutcome, Sample
from troupe.spec.algorithm import AlgorithmSpec, LossSpec
from troupe.spec.issues import SpecInvalidError
from troupe_trainer.learn.credit import overlong_penalty, penalised


def _group(*rewards: float) -> GroupOutcome:
    members = [Sample(i, r, 3, False, trajectory=i) for i, r in enumerate(rewards)]
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
    members = [Sample(0, 1.0, 3, False, trajectory=0)]
    members += [Sample(i, 0.0, 3, False, trajectory=1) for i in (1, 2, 3)]
    got = Grpo(AlgorithmSpec(scale="none")).advantages(GroupOutcome("g", "solver", 0, members))
    assert got == [0.5, -0.5, -0.5, -0.5]


@settings(deadline=None)
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
    assert AtGrpo(AlgorithmSpec()).needs == Needs(whole_round=False)
    spec = AlgorithmSpec(loss=LossSpec(entropy_coef=0.01))
    assert AtGrpo(spec).needs == Needs(entropy=True, whole_round=False)


def test_rloo_when_worked_by_hand_then_each_is_held_against_the_others() -> None:
    # 1 against (0 + 2) / 2, 0 against 3/2, 2 against 1/2
    assert Rloo(AlgorithmSpec(group_size=3)).advantages(_group(1.0, 0.0, 2.0)) == [0.0, -1.5, 1.5]


def test_marloo_when_compared_with_rloo_then_equal_per_agent() -> None:
    group = _group(1.0, 0.0, 2.0)
    assert Marloo(AlgorithmSpec()).advantages(group) == Rloo(AlgorithmSpec()).advantages(group)


def test_mareinforce_when_worked_by_hand_then_is_the_return() -> None:
    assert Mareinforce(AlgorithmSpec()).advantages(_group(1.0, 0.5)) == [1.0, 0.5]
    assert Mareinforce(AlgorithmSpec()).advantages(_group(1.0, 1.0)) == [1.0, 1.0]


def test_maremax_when_worked_by_hand_then_only_the_best_is_zero() -> None:
    assert Maremax(AlgorithmSpec()).advantages(_group(1.0, 0.0, 2.0)) == [-1.0, -2.0, 0.0]


def test_family_when_scaled_then_members_stay_distinct() -> None:
    # std of (1, 0, 2) is 1: the quotients are the centred rewards themselves.
    spec, group = AlgorithmSpec(scale="std"), _group(1.0, 0.0, 2.0)
    got = {
        kind.__name__: kind(spec).advantages(group) for kind in (Grpo, Mareinforce, Maremax, Rloo)
    }
    assert got["Grpo"] == pytest.approx([0.0, -1.0, 1.0], abs=1e-5)
    assert got["Mareinforce"] == pytest.approx([1.0, 0.0, 2.0], abs=1e-5)
    assert got["Maremax"] == pytest.approx([-1.0, -2.0, 0.0], abs=1e-5)
    assert got["Rloo"] == pytest.approx([0.0, -1.5, 1.5], abs=1e-5)


def test_family_when_scaled_and_rewards_are_equal_then_nothing_is_divided_by_next_to_nothing() -> (
    None
):
    spec, group = AlgorithmSpec(scale="std"), _group(1.0, 1.0, 1.0, 1.0)
    assert Mareinforce(spec).advantages(group) == [1.0] * 4
    for kind in (Grpo, AtGrpo, Maremax, Marloo, Rloo):
        assert kind(spec).advantages(group) == [0.0] * 4


@settings(deadline=None)
@given(st.floats(-3, 3), st.integers(2, 8), st.sampled_from([Mareinforce, Maremax, Rloo, Grpo]))
def test_family_when_scaled_and_rewards_are_equal_then_is_no_larger_than_they_are(
    reward: float, count: int, kind: type[Grpo]
) -> None:
    got = kind(AlgorithmSpec(scale="std")).advantages(_group(*[reward] * count))
    assert max(abs(value) for value in got) <= abs(reward)


def test_dr_grpo_when_not_told_otherwise_then_neither_std_nor_length_divides() -> None:
    algorithm = DrGrpo(AlgorithmSpec())
    assert algorithm.advantages(_group(0.0, 0.0, 0.0, 1.0)) == [-0.25, -0.25, -0.25, 0.75]
    assert algorithm.aggregation == "sequence_sum"
    assert DrGrpo(AlgorithmSpec(aggregation="token")).aggregation == "token"


def test_dr_mas_when_trajectories_differ_in_turns_then_each_turn_weighs_once() -> None:
    members = [Sample(0, 1.0, 3, False, trajectory=0)]
    members += [Sample(i, 0.0, 3, False, trajectory=1) for i in (1, 2, 3)]
    got = DrMas(AlgorithmSpec(scale="none")).advantages(GroupOutcome("g", "solver", 0, members))
    assert got == [0.75, -0.25, -0.25, -0.25]


def test_reinforce_pp_when_whitened_then_over_the_whole_step() -> None:
    # rewards 0 2 | 0 2: mean 1, squares 4, divisor 3 -> std sqrt(4 / 3)
    groups = [_group(0.0, 2.0), _group(0.0, 2.0)]
    algorithm = ReinforcePp(AlgorithmSpec())
    alone = [algorithm.advantages(g) for g in groups]
    unit = math.sqrt(4 / 3)
    got = algorithm.across_groups(groups, alone)
    assert got[0] == got[1] == pytest.approx([-1 / unit, 1 / unit], abs=1e-5)


def test_reinforce_pp_when_a_trajectory_took_many_turns_then_it_counts_once() -> None:
    # Returns 0 2 | 0 2 as above; the one with return 0 took five turns.
    long = [Sample(i, 0.0, 3, False, trajectory=0) for i in range(5)]
    members = [*long, Sample(5, 2.0, 3, False, trajectory=1)]
    groups = [GroupOutcome("g", "solver", 0, members), _group(0.0, 2.0)]
    algorithm = ReinforcePp(AlgorithmSpec())
    got = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    low, high = -1 / math.sqrt(4 / 3), 1 / math.sqrt(4 / 3)
    assert got[0] == pytest.approx([low] * 5 + [high], abs=1e-5)
    assert got[1] == pytest.approx([low, high], abs=1e-5)


@pytest.mark.parametrize("scale", ["std", None])
def test_reinforce_pp_when_scaled_then_the_unit_is_the_steps_and_no_groups(
    scale: str | None,
) -> None:
    # Seven ones and five zeros: mean 7/12, squares 7 * 25/144 + 5 * 49/144 = 35/12, divisor 11.
    # A one is worth the same in every group, in the one without variance too.
    groups = [_group(1.0, 1.0, 1.0, 1.0), _group(0.0, 1.0, 0.0, 1.0), _group(0.0, 0.0, 0.0, 1.0)]
    algorithm = ReinforcePp(AlgorithmSpec(scale=scale))  # type: ignore[arg-type]
    got = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    unit = math.sqrt(35 / 12 / 11)
    one, zero = pytest.approx(5 / 12 / unit, abs=1e-5), pytest.approx(-7 / 12 / unit, abs=1e-5)
    assert got == [[one] * 4, [zero, one, zero, one], [zero, zero, zero, one]]


@pytest.mark.parametrize("flat", [[0.1] * 3, [0.3] * 7, [1 / 3] * 5])
def test_reinforce_pp_baseline_when_a_group_is_flat_then_it_stays_at_exactly_0(
    flat: list[float],
) -> None:
    # In floats the step's mean is some 1e-17, which would make the group one with a signal.
    groups = [_group(0.3, 0.1, 0.2, 0.7), _group(*flat), _group(0.0, 1.0, 1.0)]
    algorithm = ReinforcePpBaseline(AlgorithmSpec())
    got = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    assert got[1] == [0.0] * len(flat)
    assert all(got[0])
    assert all(got[2])


def test_maremax_when_advantages_below_0_do_not_count_then_is_refused() -> None:
    loss = LossSpec(negative_advantage_weight=0.0)
    with pytest.raises(SpecInvalidError, match="nothing would be learnt"):
        Maremax(AlgorithmSpec(kind="maremax", loss=loss))


def test_reinforce_pp_when_not_scaled_then_nothing_is_whitened() -> None:
    groups = [_group(0.0, 2.0), _group(1.0, 1.0)]
    for kind, expected in (
        (ReinforcePp, [[0.0, 2.0], [1.0, 1.0]]),
        (ReinforcePpBaseline, [[-1.0, 1.0], [0.0, 0.0]]),
    ):
        algorithm = kind(AlgorithmSpec(scale="none"))
        assert (
            algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups]) == expected
        )


def test_reinforce_pp_baseline_when_a_group_is_lucky_then_its_mean_is_taken_off_first() -> None:
    # Less the means 12 and 1: -2, 2, -1, 1. Mean 0, squares 10, divisor 3 -> std sqrt(10 / 3).
    groups = [_group(10.0, 14.0), _group(0.0, 2.0)]
    algorithm = ReinforcePpBaseline(AlgorithmSpec())
    got = algorithm.across_groups(groups, [algorithm.advantages(g) for g in groups])
    unit = math.sqrt(10 / 3)
    assert got[0] == pytest.approx([-2 / unit, 2 / unit], abs=1e-5)
    assert got[1] == pytest.approx([-1 / unit, 1 / unit], abs=1e-5)


@pytest.mark.parametrize("kind", [ReinforcePp, ReinforcePpBaseline])
def test_reinforce_pp_when_the_step_has_no_variance_then_zero(kind: type[ReinforcePp]) -> None:
    groups = [_group(1.0, 1.0), _group(1.0, 1.0)]
    algorithm = kind(AlgorithmSpec())
    alone = [algorithm.advantages(g) for g in groups]
    assert algorithm.across_groups(groups, alone) == [[0.0, 0.0], [0.0, 0.0]]


def test_aggregation_when_the_ratio_is_a_completions_then_completions_are_averaged() -> None:
    assert AtGrpo(AlgorithmSpec()).aggregation == "token"
    assert AtGrpo(AlgorithmSpec(loss=LossSpec(kind="gspo"))).aggregation == "sequence"


def test_penalised_when_candidates_share_a_trajectory_then_all_lose_its_whole_kl() -> None:
    members = [
        Sample(0, 1.0, 3, False, trajectory=0),
        Sample(1, 1.0, 3, False, trajectory=0),
        Sample(2, 0.0, 3, False, trajectory=1),
    ]
    got = penalised(
        GroupOutcome("g", "solver", 0, members), [0.1, 0.2, 0.4], coef=0.5, by_trajectory=True
    )
    assert [c.reward for c in got.candidates] == pytest.approx([0.85, 0.85, -0.2])


def test_penalised_when_siblings_answer_one_prompt_then_each_loses_its_own() -> None:
    members = [Sample(i, 1.0, 3, False) for i in range(2)]
    got = penalised(
        GroupOutcome("g", "tool", 0, members), [0.1, 0.3], coef=1.0, by_trajectory=False
    )
    assert [c.reward for c in got.candidates] == pytest.approx([0.9, 0.7])


@pytest.mark.parametrize(
    ("num_tokens", "penalty"), [(0, 0.0), (60, 0.0), (61, 0.025), (80, 0.5), (100, 1.0)]
)
def test_overlong_penalty_when_near_the_limit_then_grows_linearly(
    num_tokens: int, penalty: float
) -> None:
    assert overlong_penalty(num_tokens, limit=100, buffer=40) == pytest.approx(penalty)
