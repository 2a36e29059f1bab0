"""MaxRL, best of K, and credit by turn, on numbers that can be followed by hand.

Each algorithm is also compared with a second implementation, written from the paper's formula
with another library (NumPy) and another order of loops.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.algorithms.at_grpo import AtGrpo, AtGrpoParams
from troupe.algorithms.best_of_k import BestOfK, BestOfKParams
from troupe.algorithms.gagpo import Gagpo, GagpoParams, prompt_values
from troupe.algorithms.gigpo import GiGpo, GiGpoParams
from troupe.algorithms.load import load_algorithm
from troupe.algorithms.maxrl import MaxRl
from troupe.algorithms.turn_grpo import TurnGrpo, TurnParams, turn_returns
from troupe.candidates import GroupOutcome, Sample
from troupe.errors import InvalidArgumentError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError

PLAIN = AlgorithmSpec(kind="grpo", group_size=2, scale="none")
SCALED = AlgorithmSpec(kind="grpo", group_size=2)


def group(acts: Sequence[tuple[int, int, float, str]]) -> GroupOutcome:
    """Acts of (trajectory, turn, reward, prompt)."""
    samples = [
        Sample(i, reward, 3, False, trajectory=trajectory, turn=turn, prompt_digest=prompt)
        for i, (trajectory, turn, reward, prompt) in enumerate(acts)
    ]
    return GroupOutcome("g", "planner", 0, samples)


def episodes(*rewards: float) -> GroupOutcome:
    return group([(i, 0, reward, "p") for i, reward in enumerate(rewards)])


def test_maxrl_when_one_of_four_succeeds_then_is_the_papers() -> None:
    # (R - 1/4) / (1/4)
    assert MaxRl(PLAIN).advantages(episodes(0, 0, 0, 1)) == [-1.0, -1.0, -1.0, 3.0]


@pytest.mark.parametrize(("k", "p"), [(2, 0.1), (4, 0.1), (8, 0.5)])
def test_maxrl_when_expected_then_is_the_truncated_series_of_log_likelihood(k: int, p: float):
    # Of one candidate: success has the score 1 / p, failure -1 / (1 - p), times the gradient of p.
    expected = 0.0
    for wins in range(k + 1):
        rewards = [1.0] * wins + [0.0] * (k - wins)
        chance = math.comb(k, wins) * p**wins * (1 - p) ** (k - wins)
        values = MaxRl(PLAIN).advantages(episodes(*rewards))
        scores = [1 / p if reward else -1 / (1 - p) for reward in rewards]
        expected += chance * sum(a * s for a, s in zip(values, scores, strict=True)) / k
    assert expected == pytest.approx(sum((1 - p) ** (n - 1) for n in range(1, k)), abs=1e-9)


def test_maxrl_when_nobody_or_everybody_succeeds_then_teaches_nothing() -> None:
    assert MaxRl(PLAIN).advantages(episodes(0, 0)) == [0.0, 0.0]
    assert MaxRl(PLAIN).advantages(episodes(1, 1)) == [0.0, 0.0]


def test_maxrl_when_a_reward_is_negative_then_is_refused() -> None:
    outcome = replace(episodes(1, -0.5), group_id="job/7", agent="tool")
    with pytest.raises(InvalidArgumentError, match=r"'tool' earned -0\.5 in group job/7.*0 or"):
        MaxRl(PLAIN).advantages(outcome)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"loss": {"kl": {"coef": 0.1, "where": "reward"}}}, "/algorithm/loss/kl/where"),
        ({"overlong": {"buffer": 4}}, "/algorithm/overlong"),
        ({"scale": "std"}, "/algorithm/scale"),
    ],
)
def test_maxrl_when_rewards_would_be_lowered_or_divided_by_their_std_then_is_refused(
    changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SpecInvalidError, match=pointer):
        MaxRl(AlgorithmSpec.model_validate(changes))


def test_maxrl_when_a_trajectory_has_turns_then_counts_once() -> None:
    acts = [(0, 0, 1.0, "a"), (0, 1, 1.0, "b"), (1, 0, 0.0, "a")]
    assert MaxRl(PLAIN).advantages(group(acts)) == [1.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((2, 5, 5, 1), [0, 0.5, 0.5, 0]),
        ((-3, -1), [0, 1]),
        ((4, 4, 4), [0, 0, 0]),
        ((0.1 + 0.2, 0.3, 0), [0.5, 0.5, 0]),
    ],
)
def test_best_of_k_when_judged_then_the_best_share_one(
    rewards: tuple[float, ...], expected: list[float]
) -> None:
    assert BestOfK(PLAIN).advantages(episodes(*rewards)) == expected


@pytest.mark.parametrize(
    ("rewards", "cut", "expected"),
    [
        ((2, 5, 3, 1), {1}, [0, 0, 1, 0]),
        ((2, 5, 5, 1), {1}, [0, 0, 1, 0]),
        ((0, 0, 1), {0, 1}, [0, 0, 1]),
        ((2, 5), {0, 1}, [0, 0]),
    ],
)
def test_best_of_k_when_the_best_is_filtered_then_the_best_that_stays_is_learnt(
    rewards: tuple[float, ...], cut: set[int], expected: list[float]
) -> None:
    acts = episodes(*rewards)
    acts = replace(
        acts, candidates=[replace(c, is_truncated=c.index in cut) for c in acts.candidates]
    )
    filtered = AlgorithmSpec.model_validate({"filters": {"truncated": True}})
    assert BestOfK(filtered).advantages(acts) == expected
    assert BestOfK(AlgorithmSpec()).advantages(acts)[rewards.index(max(rewards))] > 0


def test_best_of_k_when_whole_episodes_then_all_turns_of_the_best_are_learnt() -> None:
    acts = [(0, 0, 1.0, "a"), (0, 1, 1.0, "b"), (1, 0, 0.0, "a")]
    algorithm = BestOfK(PLAIN, BestOfKParams(sampling="parallel"))
    assert algorithm.advantages(group(acts)) == [1.0, 1.0, 0.0]
    assert algorithm.sampler().num_trajectories == 2


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"loss": {"kl": {"coef": 0.1}}}, "/algorithm/loss/kl/where"),
        (
            {"loss": {"kl": {"coef": 0.1, "where": "reward", "adaptive": {"target": 0.1}}}},
            "/algorithm/loss/kl/adaptive",
        ),
        ({"loss": {"adaptive_entropy": {"target": 0.3}}}, "/algorithm/loss/adaptive_entropy"),
        ({"loss": {"importance": {}}}, "/algorithm/loss/importance: .*max_staleness"),
        ({"loss": {"clip_high": 0.3}}, "/algorithm/loss/clip_high"),
        ({"loss": {"kind": "cispo"}}, "/algorithm/loss/kind"),
        ({"loss": {"negative_advantage_weight": 0.0}}, "/negative_advantage_weight: .* leave neg"),
        ({"scale": "std"}, "/algorithm/scale"),
    ],
)
def test_best_of_k_when_a_setting_would_be_ignored_then_is_refused(
    changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SpecInvalidError, match=pointer):
        BestOfK(AlgorithmSpec.model_validate(changes))


@pytest.mark.parametrize("loss", [{"kl": {"coef": 0.1, "where": "reward"}}, {"entropy_coef": 0.01}])
def test_best_of_k_when_kl_is_in_the_reward_or_entropy_has_a_weight_then_is_made(
    loss: dict[str, Any],
) -> None:
    assert BestOfK(AlgorithmSpec.model_validate({"loss": loss, "overlong": {"buffer": 4}}))


def test_turn_returns_when_discounted_then_sum_what_follows() -> None:
    acts = [(0, 2, 2.0, "c"), (1, 0, 4.0, "a"), (0, 0, 0.0, "a"), (0, 1, 1.0, "b")]
    assert turn_returns(group(acts), 0.5) == [2.0, 4.0, 1.0, 2.0]


def test_turn_grpo_when_unscaled_then_compares_every_act_once() -> None:
    # Returns 3, 2 (trajectory 0) and 1 (trajectory 1): mean 2.
    acts = [(0, 0, 1.0, "a"), (0, 1, 2.0, "b"), (1, 0, 1.0, "a")]
    assert TurnGrpo(PLAIN, TurnParams()).advantages(group(acts)) == [1.0, 0.0, -1.0]


def test_turn_grpo_when_an_act_is_paid_for_itself_then_later_turns_count_nothing() -> None:
    # Rewards 1, 2, 0: mean 1.
    acts = [(0, 0, 1.0, "a"), (0, 1, 2.0, "b"), (1, 0, 0.0, "a")]
    algorithm = TurnGrpo(PLAIN, TurnParams(gamma=0.0, reward="own_act"))
    assert algorithm.advantages(group(acts)) == [0.0, 1.0, -1.0]
    assert algorithm.sampler().grouping == "acts"
    assert TurnGrpo(PLAIN, TurnParams()).sampler().grouping == "turns"


def test_gigpo_when_prompts_are_equal_then_adds_their_comparison() -> None:
    # Totals 3 and 1: +1, -1. At prompt a returns 3 and 1 (gamma 1): +1, -1. Prompt b is alone.
    acts = [(0, 0, 1.0, "a"), (0, 1, 2.0, "b"), (1, 0, 1.0, "a")]
    algorithm = GiGpo(PLAIN, GiGpoParams(gamma=1.0, step_weight=0.5))
    assert algorithm.advantages(group(acts)) == [1.5, 1.0, -1.5]


def test_gigpo_when_an_episode_returns_to_a_prompt_then_its_acts_are_compared() -> None:
    # One trajectory meets a twice: returns 2 and 1 there, mean 1.5; no other trajectory.
    acts = [(0, 0, 1.0, "a"), (0, 1, 1.0, "a")]
    assert GiGpo(PLAIN, GiGpoParams(gamma=1.0)).advantages(group(acts)) == [0.5, -0.5]


def test_gigpo_when_later_turns_count_nothing_then_equal_rewards_teach_nothing() -> None:
    # Both episodes earn 2; a discount as small as 1e-6 would be scaled up to a full advantage.
    acts = [(0, 0, 1.0, "a"), (0, 1, 1.0, "a"), (1, 0, 1.0, "a"), (1, 1, 1.0, "a")]
    assert GiGpo(SCALED, GiGpoParams(gamma=0.0)).advantages(group(acts)) == [0.0] * 4
    tiny = GiGpo(SCALED, GiGpoParams(gamma=1e-6)).advantages(group(acts))
    assert max(tiny) > 0.2


def test_gigpo_when_an_act_is_paid_for_itself_then_rewards_are_by_act() -> None:
    assert GiGpo(PLAIN, GiGpoParams(reward="own_act")).sampler().grouping == "acts"
    assert GiGpo(PLAIN, GiGpoParams()).sampler().grouping == "turns"


def test_gagpo_when_prompts_are_equal_then_their_mean_return_is_the_value() -> None:
    # Returns: a 3 and 1, b 2, c 1. V(a) = 2, V(b) = 2, V(c) = 1.
    acts = [(0, 0, 1.0, "a"), (0, 1, 2.0, "b"), (1, 0, 0.0, "a"), (1, 1, 1.0, "c")]
    assert prompt_values(group(acts), 1.0) == [2.0, 2.0, 2.0, 1.0]
    # lambda 0: r + V' - V. At a: 1 + 2 - 2 and 0 + 1 - 2; at b and c nothing is left to explain.
    algorithm = Gagpo(PLAIN, GagpoParams(gae_lambda=0.0))
    assert algorithm.advantages(group(acts)) == [1.0, 0.0, -1.0, 0.0]
    # Scaled: mean 0, sample deviation sqrt(2 / 3).
    scaled = Gagpo(SCALED, GagpoParams(gae_lambda=0.0)).advantages(group(acts))
    assert scaled == pytest.approx([1.5**0.5, 0.0, -(1.5**0.5), 0.0], abs=1e-5)


def test_gagpo_when_lambda_is_one_then_is_return_minus_value() -> None:
    acts = [(0, 0, 1.0, "a"), (0, 1, 2.0, "b"), (1, 0, 1.0, "a"), (1, 1, 0.0, "b")]
    # Returns 3, 2, 1, 0; V(a) = 2, V(b) = 1.
    algorithm = Gagpo(PLAIN, GagpoParams(gae_lambda=1.0))
    assert algorithm.advantages(group(acts)) == [1.0, 1.0, -1.0, -1.0]


def gagpo_by_numpy(acts: Sequence[tuple[int, int, float, str]], gamma: float, lam: float):
    """The double sum of GAE's definition, with values by explicit loops."""
    by_place = {(act[0], act[1]): act for act in acts}

    def following(n: int, t: int) -> float:
        return sum(gamma ** (u - t) * by_place[m, u][2] for m, u in by_place if m == n and u >= t)

    def value(n: int, t: int) -> float:
        if (n, t) not in by_place:
            return 0.0
        same = [p for p in by_place if by_place[p][3] == by_place[n, t][3]]
        return float(np.mean([following(*p) for p in same]))

    def delta(n: int, t: int) -> float:
        return by_place[n, t][2] + gamma * value(n, t + 1) - value(n, t)

    result = np.array(
        [
            sum((gamma * lam) ** (u - t) * delta(n, u) for u in range(t, 9) if (n, u) in by_place)
            for n, t, _, _ in acts
        ]
    )
    std = np.std(result, ddof=1)
    return 0 * result if std < 1e-8 else (result - result.mean()) / (std + 1e-6)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.9]), st.sampled_from([0.0, 0.95, 1.0]))
def test_gagpo_when_compared_with_its_formulas_then_agrees_to_1e_9(
    seed: int, gamma: float, gae_lambda: float
) -> None:
    acts = some_acts(Random(seed))
    algorithm = Gagpo(SCALED, GagpoParams(gamma=gamma, gae_lambda=gae_lambda))
    expected = gagpo_by_numpy(acts, gamma, gae_lambda)
    assert algorithm.advantages(group(acts)) == pytest.approx(expected.tolist(), abs=1e-9)


def some_acts(rng: Random) -> list[tuple[int, int, float, str]]:
    """Shuffled acts of 2 to 5 episodes of 1 to 4 turns, at three prompts."""
    acts = [
        (trajectory, turn, rng.choice([0.0, 0.25, 1.0, rng.uniform(-1, 1)]), rng.choice("abc"))
        for trajectory in range(rng.randint(2, 5))
        for turn in range(rng.randint(1, 4))
    ]
    rng.shuffle(acts)
    return acts


def gigpo_by_numpy(acts: Sequence[tuple[int, int, float, str]], gamma: float, weight: float):
    """GiGPO, Equations 3 to 9, from the formulas."""
    rewards = np.array([act[2] for act in acts])
    own = np.array([act[0] for act in acts])
    turns = np.array([act[1] for act in acts])
    prompts = np.array([act[3] for act in acts])

    def normalised(values: np.ndarray) -> np.ndarray:
        if len(values) < 2 or np.std(values, ddof=1) < 1e-8:
            return np.zeros(len(values))
        return (values - values.mean()) / (np.std(values, ddof=1) + 1e-6)

    numbers = np.unique(own)
    totals = np.array([rewards[own == n].sum() for n in numbers])
    of_episode = dict(zip(numbers, normalised(totals), strict=True))
    result = np.array([of_episode[n] for n in own])
    later = (own[:, None] == own[None, :]) & (turns[None, :] >= turns[:, None])
    powers = np.where(later, gamma ** np.maximum(turns[None, :] - turns[:, None], 0), 0.0)
    returns = powers @ rewards
    for prompt in np.unique(prompts):
        result[prompts == prompt] += weight * normalised(returns[prompts == prompt])
    return result


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.95, 0.5]), st.sampled_from([0.0, 1.0, 2.5]))
def test_gigpo_when_compared_with_its_formulas_then_agrees_to_1e_9(
    seed: int, gamma: float, weight: float
) -> None:
    acts = some_acts(Random(seed))
    algorithm = GiGpo(SCALED, GiGpoParams(gamma=gamma, step_weight=weight))
    expected = gigpo_by_numpy(acts, gamma, weight)
    assert algorithm.advantages(group(acts)) == pytest.approx(expected.tolist(), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.9, 0.0]))
def test_turn_grpo_when_compared_with_its_formula_then_agrees_to_1e_9(
    seed: int, gamma: float
) -> None:
    """G = sum over t' >= t of gamma ** (t' - t) * r, then (G - mean) / std over acts."""
    acts = some_acts(Random(seed))
    own, turns = np.array([act[0] for act in acts]), np.array([act[1] for act in acts])
    apart = turns[None, :] - turns[:, None]
    later = (own[:, None] == own[None, :]) & (apart >= 0)
    returns = np.where(later, gamma ** np.maximum(apart, 0), 0.0) @ [act[2] for act in acts]
    deviation = np.std(returns, ddof=1)
    expected = 0.0 * returns
    if deviation >= 1e-8:
        expected = (returns - returns.mean()) / (deviation + 1e-6)
    found = TurnGrpo(SCALED, TurnParams(gamma=gamma)).advantages(group(acts))
    assert found == pytest.approx(expected.tolist(), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=9))
def test_best_of_k_when_compared_with_its_formula_then_agrees_to_1e_9(rewards: list[float]) -> None:
    """1 / (number of the best) on the best, 0 elsewhere and in a flat group."""
    is_best = np.array(rewards) == np.max(rewards)
    expected = np.where(is_best & (not is_best.all()), 1.0 / is_best.sum(), 0.0)
    found = BestOfK(PLAIN, BestOfKParams()).advantages(episodes(*rewards))
    assert found == pytest.approx(expected.tolist(), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=9))
def test_maxrl_when_compared_with_its_formula_then_agrees_to_1e_9(rewards: list[float]) -> None:
    values = np.array(rewards)
    expected = (values - values.mean()) / values.mean() if values.any() else 0 * values
    assert MaxRl(PLAIN).advantages(episodes(*rewards)) == pytest.approx(expected.tolist(), abs=1e-9)


def test_at_grpo_when_it_advances_at_random_then_rewards_do_not_decide() -> None:
    best, random = (
        AtGrpo(PLAIN, AtGrpoParams(advance=how)).sampler() for how in ("best", "random")
    )
    assert best.choose([0.0, 2.0, 1.0]) == 1
    assert {random.choose(rewards) for rewards in ([0.0, 2.0], [2.0, 0.0], [1.0, 1.0])} == {0}


def test_params_when_misspelt_then_are_named() -> None:
    with pytest.raises(SpecInvalidError, match="/algorithm/params/advanse"):
        load_algorithm(AlgorithmSpec(params={"advanse": "random"}))
    spec = AlgorithmSpec(kind="gigpo", params={"step_weight": 0.5})
    algorithm = load_algorithm(spec)
    assert isinstance(algorithm, GiGpo)
    assert algorithm.params.step_weight == 0.5
