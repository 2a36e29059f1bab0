"""Agents whose number of calls varies by rollout: numbers by hand, and the formulas by NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.grpo import Grpo
from troupe.algorithms.load import load_algorithm
from troupe.algorithms.m_grpo import MGrpo
from troupe.algorithms.matpo import Matpo, MatpoParams
from troupe.algorithms.rollout_weights import equal_rollouts
from troupe.candidates import GroupOutcome, Sample
from troupe.errors import InvalidArgumentError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import SpecInvalidError

PLAIN = AlgorithmSpec(kind="grpo", group_size=3, scale="none")
SCALED = AlgorithmSpec(kind="grpo", group_size=3)
TOKENS, ROLLOUTS = MatpoParams(lead="p"), MatpoParams(lead="p", weigh="rollouts")
Calls = Sequence[tuple[int, int]]


def group(calls: Calls, returns: Sequence[float], *, is_led: bool = True) -> GroupOutcome:
    """Calls of (rollout, tokens), each with its rollout's return."""
    samples = [
        Sample(i, returns[rollout], tokens, False, trajectory=rollout)
        for i, (rollout, tokens) in enumerate(calls)
    ]
    return GroupOutcome("g", "w", 0, samples, lead_returns=tuple(returns) if is_led else ())


def test_matpo_when_a_worker_was_not_called_then_that_rollout_counts_in_the_mean() -> None:
    # Returns 1, 0, 1/2: mean 1/2. The worker: two calls in rollout 0, one in 1, none in 2.
    calls = group([(0, 4), (0, 4), (1, 4)], [1.0, 0.0, 0.5])
    assert Matpo(PLAIN, TOKENS).advantages(calls) == [0.5, 0.5, -0.5]
    # GRPO knows only the rollouts that called it: the same mean here, another one below.
    calls = group([(0, 4), (1, 4)], [1.0, 0.0, 0.25])
    assert Grpo(PLAIN).advantages(calls) == [0.5, -0.5]
    lead = Matpo(PLAIN, TOKENS).advantages(calls)
    assert lead == pytest.approx([1 - 1.25 / 3, -1.25 / 3], abs=1e-12)


def test_matpo_when_one_rollout_alone_called_then_its_call_still_learns() -> None:
    # Returns 0, 1, 0; std of (0, 1, 0) is sqrt(1/3).
    [advantage] = Matpo(SCALED, TOKENS).advantages(group([(1, 7)], [0.0, 1.0, 0.0]))
    assert advantage == pytest.approx((2 / 3) / (3**-0.5 + 1e-6), abs=1e-12)


def test_matpo_when_rollouts_are_equal_then_more_calls_weigh_no_more() -> None:
    # 6 tokens in rollout 0 (two calls), 2 in rollout 1: mean 4. Shared advantages 1/2 and -1/2.
    calls = group([(0, 2), (0, 4), (1, 2)], [1.0, 0.0])
    advantages = Matpo(PLAIN, ROLLOUTS).advantages(calls)
    assert advantages == pytest.approx([0.5 * 4 / 6, 0.5 * 4 / 6, -0.5 * 4 / 2], abs=1e-12)
    # In the loss, which is a sum over tokens, both rollouts have the same weight.
    assert 6 * advantages[0] == pytest.approx(-2 * advantages[2], abs=1e-12)


def test_matpo_when_returns_are_equal_then_teaches_nothing() -> None:
    assert Matpo(SCALED, ROLLOUTS).advantages(group([(0, 3), (2, 1)], [1.0] * 3)) == [0.0, 0.0]


def test_m_grpo_when_a_rollout_calls_thrice_then_is_the_docstrings() -> None:
    calls = group([(0, 5), (0, 5), (0, 5), (1, 5)], [1.0, 0.0], is_led=False)
    assert MGrpo(PLAIN).advantages(calls) == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1], abs=1e-12)


def test_weights_when_the_loss_averages_completions_then_calls_are_counted() -> None:
    calls = group([(0, 1), (0, 9), (1, 5)], [1.0, 0.0])
    weighed = equal_rollouts(calls, [1.0, 1.0, 1.0], "sequence")
    assert weighed == pytest.approx([1.5 / 2, 1.5 / 2, 1.5], abs=1e-12)


RETURNS = st.lists(st.sampled_from([0.0, 0.25, 1.0, -2.0]), min_size=2, max_size=6)
CALLS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=20)


@given(returns=RETURNS, calls=CALLS, scale=st.sampled_from(["std", "none"]))
def test_formulas_when_computed_by_numpy_then_agree_to_1e_9(
    returns: list[float], calls: list[tuple[int, int]], scale: Any
) -> None:
    calls = [(rollout % len(returns), tokens) for rollout, tokens in calls]
    spec = AlgorithmSpec(kind="grpo", group_size=6, scale=scale)
    ragged = group(calls, returns)
    rollout, tokens = np.array(calls).T
    own = np.unique(rollout)

    def relative(values: Any) -> Any:
        spread = values.std(ddof=1) if len(values) > 1 else 0.0
        return (values - values.mean()) / (spread + 1e-6 if scale == "std" and spread else 1.0)

    def equalised(advantages: Any) -> Any:
        per_rollout = np.array([tokens[rollout == r].sum() for r in rollout])
        return advantages * tokens.sum() / len(own) / per_rollout

    shared = relative(np.array(returns))[rollout]
    assert np.allclose(Matpo(spec, TOKENS).advantages(ragged), shared, atol=1e-9)
    assert np.allclose(Matpo(spec, ROLLOUTS).advantages(ragged), equalised(shared), atol=1e-9)
    by_rollout = dict(zip(own, relative(np.array(returns)[own]), strict=True))
    alone = np.array([by_rollout[r] for r in rollout])
    assert np.allclose(MGrpo(spec).advantages(ragged), equalised(alone), atol=1e-9)


@given(returns=RETURNS, calls=CALLS)
def test_m_grpo_when_calls_are_repeated_and_dropped_as_in_the_paper_then_is_the_mean_of_that(
    returns: list[float], calls: list[tuple[int, int]]
) -> None:
    """Calls of one length: aligned to D of each rollout, each is there D / d times on average."""
    calls = [(rollout % len(returns), 3) for rollout, _ in calls]
    ragged = group(calls, returns)
    rollout = np.array(calls)[:, 0]
    own, counts = np.unique(rollout, return_counts=True)
    aligned_to = 7
    times = np.array([aligned_to / counts[own == r][0] for r in rollout])
    mean = (times * np.array(returns)[rollout]).sum() / times.sum()
    share = times * (np.array(returns)[rollout] - mean) / times.sum()  # of a mean over the batch
    ours = np.array(MGrpo(PLAIN).advantages(ragged)) / len(calls)
    assert np.allclose(ours, share, atol=1e-9)


def test_matpo_when_a_group_has_no_lead_then_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match="no returns of the lead"):
        Matpo(PLAIN, TOKENS).advantages(group([(0, 1)], [1.0, 0.0], is_led=False))


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"params": {}}, "/algorithm/params/lead"),
        ({"overlong": {"buffer": 4}}, "/algorithm/overlong"),
        ({"loss": {"kl": {"coef": 0.1, "where": "reward"}}}, "/algorithm/loss/kl/where"),
    ],
)
def test_matpo_when_calls_would_have_rewards_of_their_own_then_is_refused(
    more: dict[str, Any], pointer: str
) -> None:
    document = {"kind": "matpo", "group_size": 4, "params": {"lead": "p"}, **more}
    with pytest.raises(SpecInvalidError) as raised:
        load_algorithm(AlgorithmSpec.model_validate(document))
    assert pointer in str(raised.value)


CRITIC: dict[str, Any] = {"critic": {"kind": "head"}}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("reinforce_pp", {}),
        ("mareinforce", {}),
        ("role_conditioned", {}),
        ("remax", {}),
        ("ippo", CRITIC),
        ("mappo", {"critic": {"kind": "model"}}),
    ],
)
def test_one_call_when_it_is_compared_with_others_than_its_group_then_it_is_learnt_from(
    kind: str, parts: dict[str, Any]
) -> None:
    spec = AlgorithmSpec.model_validate({"kind": kind, "group_size": 1, **parts})
    assert load_algorithm(spec).needs.candidates == 1


@pytest.mark.parametrize("kind", ["grpo", "at_grpo", "rloo", "reinforce_pp_baseline", "gdpo"])
def test_one_call_when_its_group_is_what_it_is_compared_with_then_is_refused(kind: str) -> None:
    with pytest.raises(SpecInvalidError, match="compares at least 2"):
        load_algorithm(AlgorithmSpec(kind=kind, group_size=1))


def test_reinforce_pp_when_an_agent_was_called_once_then_is_whitened_with_the_step() -> None:
    algorithm = load_algorithm(AlgorithmSpec(kind="reinforce_pp", group_size=1))
    groups = [group([(0, 4)], [reward], is_led=False) for reward in (1.0, 0.0, 0.5)]
    plain = [algorithm.advantages(one) for one in groups]
    # Mean 1/2, deviation 1/2.
    values = [value for (value,) in algorithm.across_groups(groups, plain)]
    assert values == pytest.approx([1.0, -1.0, 0.0], abs=1e-5)
