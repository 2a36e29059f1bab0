import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses import policy_loss
from troupe.algorithms.losses.kl import kl_estimate
from troupe.spec.algorithm import ImportanceSpec, KlSpec, LossSpec, RatioMaskSpec


def _doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _inputs(
    ratios: list[float],
    advantages: list[float],
    sequences: list[int],
    *,
    weights: list[float] | None = None,
    old: list[float] | None = None,
    ref: list[float] | None = None,
) -> LossInputs:
    """Ratios to a rollout whose log probabilities are all 0."""
    return LossInputs(
        trainer_logprobs_N=torch.log(_doubles(ratios)).requires_grad_(),
        rollout_logprobs_N=_doubles([0.0] * len(ratios)),
        advantages_N=_doubles(advantages),
        sequence_N=torch.tensor(sequences),
        weights_N=_doubles(weights or [1.0] * len(ratios)),
        old_logprobs_N=None if old is None else _doubles(old),
        ref_logprobs_N=None if ref is None else _doubles(ref),
    )


def _gradient(inputs: LossInputs, spec: LossSpec) -> list[float]:
    policy_loss(inputs, spec).loss_sum.backward()  # pyright: ignore[reportUnknownMemberType]
    assert inputs.trainer_logprobs_N.grad is not None
    return inputs.trainer_logprobs_N.grad.tolist()


def test_gspo_when_token_ratios_cancel_then_the_completion_is_not_clipped() -> None:
    # Ratios 2 and 1/2 have the geometric mean 1; each of the two tokens carries s * A = 1.
    inputs = _inputs([2.0, 0.5], [1.0, 1.0], [0, 0])
    out = policy_loss(inputs, LossSpec(kind="gspo", clip_low=0.1, clip_high=0.1))
    assert out.loss_sum.item() == pytest.approx(-2.0)
    assert out.metric_sums["clip_fraction_high"] == 0


def test_gspo_when_completions_are_averaged_then_the_gradient_is_the_papers() -> None:
    # Equation 7: s * A / length on every token, s = sqrt(1.2 * 1.2) = 1.2, length 2.
    inputs = _inputs([1.2, 1.2, 1.0], [1.0, 1.0, -1.0], [0, 0, 1], weights=[0.5, 0.5, 1.0])
    spec = LossSpec(kind="gspo", clip_low=0.5, clip_high=0.5)
    assert _gradient(inputs, spec) == pytest.approx([-0.6, -0.6, 1.0])


def test_gspo_when_the_completion_leaves_the_range_then_all_its_tokens_lose_their_gradient() -> (
    None
):
    inputs = _inputs([2.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0, 0, 1])
    spec = LossSpec(kind="gspo", clip_low=0.2, clip_high=0.2)
    assert _gradient(inputs, spec) == pytest.approx([0.0, 0.0, -1.0])


def test_gspo_when_no_range_is_given_then_it_is_the_papers_and_not_ppos() -> None:
    # exp(0.0005) is above 1 + 4e-4, exp(0.0003) is not.
    inputs = _inputs([math.exp(5e-4), math.exp(3e-4)], [1.0, 1.0], [0, 1])
    assert _gradient(inputs, LossSpec(kind="gspo")) == pytest.approx([0.0, -math.exp(3e-4)])
    assert LossSpec(kind="gspo", clip_low=0.1).clip_range == (0.1, 4e-4)
    assert LossSpec().clip_range == (0.2, 0.2)


def test_cispo_when_the_ratio_leaves_the_range_then_the_weight_is_cut_and_the_gradient_stays() -> (
    None
):
    inputs = _inputs([1.5, 0.5, 1.0], [1.0, 1.0, -2.0], [0, 1, 2])
    spec = LossSpec(kind="cispo", clip_low=0.2, clip_high=0.2)
    assert _gradient(inputs, spec) == pytest.approx([-1.2, -0.8, 2.0])


def test_cispo_when_no_range_is_given_then_weights_have_no_lower_bound() -> None:
    inputs = _inputs([1.5, 0.1, 0.1], [1.0, 1.0, -1.0], [0, 1, 2])
    assert _gradient(inputs, LossSpec(kind="cispo")) == pytest.approx([-1.2, -0.1, 0.1])


@pytest.mark.parametrize("kind", ["ppo_clip", "gspo", "cispo"])
def test_gradient_when_on_policy_then_every_surrogate_is_reinforce(kind: str) -> None:
    inputs = _inputs([1.0, 1.0, 1.0], [1.0, 1.0, -0.5], [0, 0, 1])
    spec = LossSpec.model_validate({"kind": kind})
    assert _gradient(inputs, spec) == pytest.approx([-1.0, -1.0, 0.5])


def test_kl_when_a_token_is_twice_as_likely_then_the_textbook_numbers() -> None:
    policy, reference = _doubles([math.log(0.5)]), _doubles([math.log(0.25)])
    got = {e: kl_estimate(policy, reference, e).item() for e in ("k1", "k2", "k3")}
    assert got["k1"] == pytest.approx(math.log(2))
    assert got["k2"] == pytest.approx(math.log(2) ** 2 / 2)
    assert got["k3"] == pytest.approx(0.5 - 1 + math.log(2))


@settings(deadline=None)
@given(st.floats(-5, 0), st.floats(-5, 0))
def test_k3_when_anything_then_never_negative(policy: float, reference: float) -> None:
    assert kl_estimate(_doubles([policy]), _doubles([reference]), "k3").item() >= -1e-12


def test_kl_in_the_loss_when_worked_by_hand_then_pulls_to_the_reference() -> None:
    # d(k2) / d(log pi) = log pi - log ref = log 2 for the first token; A = 0 leaves nothing else.
    inputs = _inputs([1.0, 1.0], [0.0, 0.0], [0, 1], ref=[-math.log(2), 0.0])
    spec = LossSpec(kl=KlSpec(coef=0.1, estimator="k2"))
    assert _gradient(inputs, spec) == pytest.approx([0.1 * math.log(2), 0.0])


def test_k3_in_the_loss_when_worked_by_hand_then_its_gradient_is_one_minus_the_ratio() -> None:
    # d(k3) / d(log pi) = 1 - pi_ref / pi: pi 1 and ref 1/2, pi 1/2 and ref 3/4, both 1/2.
    inputs = _inputs(
        [1.0, 0.5, 0.5], [0.0] * 3, [0, 1, 2], ref=[math.log(p) for p in (0.5, 0.75, 0.5)]
    )
    spec = LossSpec(kl=KlSpec(coef=0.1, estimator="k3"))
    assert _gradient(inputs, spec) == pytest.approx([0.1 * 0.5, 0.1 * -0.5, 0.0])


def test_kl_in_the_reward_when_computed_then_is_no_part_of_the_loss() -> None:
    inputs = _inputs([1.0], [1.0], [0], ref=[-1.0])
    out = policy_loss(inputs, LossSpec(kl=KlSpec(coef=0.1, where="reward")))
    assert out.loss_sum.item() == pytest.approx(-1.0)
    assert out.metric_sums["kl_ref"] == pytest.approx(math.exp(-1.0))


def test_kl_in_the_reward_when_the_policy_has_moved_then_is_that_of_what_was_sampled() -> None:
    # Sampled at log 1 against a reference of -1: k1 is 1, though the token is now at log 1/8.
    inputs = _inputs([0.125], [1.0], [0], ref=[-1.0])
    kl = KlSpec(coef=0.1, where="reward", estimator="k1")
    assert policy_loss(inputs, LossSpec(kl=kl)).metric_sums["kl_ref"] == pytest.approx(1.0)


def test_importance_when_engine_and_trainer_differ_then_tokens_weigh_by_old_over_rollout() -> None:
    # old / rollout = 0.5 and 4 -> cut to 2; trainer = old, so the ratio is 1.
    old = [math.log(0.5), math.log(4.0)]
    inputs = _inputs([0.5, 4.0], [1.0, 1.0], [0, 0], old=old)
    out = policy_loss(inputs, LossSpec(importance=ImportanceSpec(cap=2.0)))
    assert out.loss_sum.item() == pytest.approx(-0.5 - 2.0)
    assert out.metric_sums["importance_capped"] == 1


def test_importance_when_by_sequence_then_the_product_weighs_every_token() -> None:
    old = [math.log(0.5), math.log(4.0), math.log(0.5)]
    inputs = _inputs([0.5, 4.0, 0.5], [1.0, 1.0, 1.0], [0, 0, 1], old=old)
    spec = LossSpec(importance=ImportanceSpec(level="sequence", cap=10.0))
    assert policy_loss(inputs, spec).loss_sum.item() == pytest.approx(-2.0 - 2.0 - 0.5)


def test_importance_when_the_old_logprobs_are_missing_then_says_so() -> None:
    with pytest.raises(ValueError, match="old_logprobs_N"):
        policy_loss(_inputs([1.0], [1.0], [0]), LossSpec(importance=ImportanceSpec()))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_when_it_is_a_loss_term_then_its_expected_gradient_is_the_named_divergences(
    estimator: Literal["k1", "k2", "k3"],
) -> None:
    ref_V = torch.log_softmax(torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64), 0)

    def gradient(of: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
        logits_V = torch.tensor([1.0, 0.2, -0.7], dtype=torch.float64, requires_grad=True)
        of(torch.log_softmax(logits_V, 0)).backward()  # pyright: ignore[reportUnknownMemberType]
        assert logits_V.grad is not None
        return logits_V.grad.tolist()

    def sampled(policy_V: torch.Tensor) -> torch.Tensor:
        return (policy_V.exp().detach() * kl_estimate(policy_V, ref_V, estimator)).sum()

    expected: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "k1": lambda policy_V: 0.0 * policy_V.sum(),
        "k2": lambda policy_V: (policy_V.exp() * (policy_V - ref_V)).sum(),
        "k3": lambda policy_V: (ref_V.exp() * (ref_V - policy_V)).sum(),
    }
    assert gradient(sampled) == pytest.approx(gradient(expected[estimator]), abs=1e-9)


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("token", [True, False, True, True]),  # ratios 0.5, 8, 1, 1
        ("sequence", [False, False, True, True]),  # products 4 and 1
        ("geometric", [True, True, True, True]),  # their geometric means 2 and 1
    ],
)
def test_mask_when_ratios_leave_the_band_then_these_tokens_weigh_nothing(
    level: Literal["token", "sequence", "geometric"], kept: list[bool]
) -> None:
    old = [math.log(0.5), math.log(8.0), 0.0, 0.0]
    inputs = _inputs([0.5, 8.0, 1.0, 1.0], [1.0] * 4, [0, 0, 1, 1], old=old)
    mask = RatioMaskSpec(level=level, low=0.5, high=3.0)
    out = policy_loss(inputs, LossSpec(importance=ImportanceSpec(cap=10.0, mask=mask)))
    weights = [0.5, 8.0, 1.0, 1.0]
    assert out.loss_sum.item() == pytest.approx(
        -sum(weight for weight, is_kept in zip(weights, kept, strict=True) if is_kept)
    )
    assert out.metric_sums["importance_masked"] == 4 - sum(kept)


def test_mask_when_no_ratio_leaves_the_band_then_changes_nothing() -> None:
    inputs = _inputs([1.1, 0.9], [1.0, -1.0], [0, 1], old=[math.log(1.1), math.log(0.9)])
    plain = policy_loss(inputs, LossSpec(importance=ImportanceSpec()))
    masked = policy_loss(inputs, LossSpec(importance=ImportanceSpec(mask=RatioMaskSpec())))
    assert masked.loss_sum.item() == plain.loss_sum.item()


def test_mask_when_no_band_is_given_then_is_that_of_its_level() -> None:
    for level, low, high in (
        ("token", 0.5, 5.0),
        ("sequence", 0.5, 5.0),
        ("geometric", 0.999, 1.001),
    ):
        document = {"level": level, "low": low, "high": high}
        assert RatioMaskSpec.model_validate({"level": level}).model_dump() == document
    assert RatioMaskSpec(level="geometric", high=1.01).low == 0.999
    # Every token a half more probable: 1.5 to the power of 20 as a product, 1.5 in the mean.
    old = [math.log(1.5)] * 20 + [math.log(1.0005)] * 20
    inputs = _inputs([1.5] * 20 + [1.0005] * 20, [1.0] * 40, [0] * 20 + [1] * 20, old=old)
    mask = RatioMaskSpec(level="geometric")
    out = policy_loss(inputs, LossSpec(importance=ImportanceSpec(mask=mask)))
    assert out.metric_sums["importance_masked"] == 20
    assert out.loss_sum.item() == pytest.approx(-20 * 1.0005)


def test_mask_when_a_token_is_masked_then_it_is_not_capped_too() -> None:
    old = [math.log(4.0), math.log(6.0)]
    inputs = _inputs([4.0, 6.0], [1.0, 1.0], [0, 1], old=old)
    capped = policy_loss(inputs, LossSpec(importance=ImportanceSpec(mask=RatioMaskSpec())))
    assert capped.metric_sums["importance_capped"] == capped.metric_sums["importance_masked"] == 1
    assert capped.loss_sum.item() == pytest.approx(-2.0)
    icepop = ImportanceSpec(cap=5.0, mask=RatioMaskSpec())
    assert policy_loss(inputs, LossSpec(importance=icepop)).loss_sum.item() == pytest.approx(-4.0)


def test_loss_when_the_signs_of_advantages_are_weighed_then_each_by_its_own_factor() -> None:
    # Ratios of 1: a token's gradient is -A times the weight of its sign.
    inputs = _inputs([1.0, 1.0, 1.0], [2.0, -4.0, 0.0], [0, 1, 2])
    spec = LossSpec(positive_advantage_weight=0.1, negative_advantage_weight=0.5)
    assert _gradient(inputs, spec) == pytest.approx([-0.2, 2.0, 0.0], rel=1e-9)


def test_loss_when_worse_candidates_weigh_nothing_then_they_have_no_gradient_and_no_clip() -> None:
    inputs = _inputs([1.0, 0.5], [2.0, -4.0], [0, 1])
    spec = LossSpec(negative_advantage_weight=0.0)
    assert policy_loss(inputs, spec).metric_sums["clip_fraction_low"] == 0
    assert _gradient(inputs, spec) == pytest.approx([-2.0, 0.0])
