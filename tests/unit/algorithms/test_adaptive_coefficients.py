"""Coefficients that follow a target: arithmetic by hand, and against a reference of their own."""

import math
import random

import pytest
import torch

from troupe.algorithms.adaptive import Coefficients, next_entropy_coef, next_kl_coef
from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.grpo import Grpo
from troupe.algorithms.losses import policy_loss
from troupe.spec.algorithm import (
    AdaptiveEntropySpec,
    AdaptiveKlSpec,
    AlgorithmSpec,
    KlSpec,
    LossSpec,
)

KL = AdaptiveKlSpec(target=0.01)
ENTROPY = AdaptiveEntropySpec(target=0.3, delta=0.005, max_coef=0.02)


@pytest.mark.parametrize(
    ("kl", "following"),
    [
        (0.010, 0.5),  # on target
        (0.011, 0.505),  # e = 0.1, times 1.01
        (0.009, 0.495),  # e = -0.1
        (0.050, 0.51),  # e = 4, cut to 0.2
        (-0.030, 0.49),  # k1 of a sample may be negative: e = -4, cut to -0.2
    ],
)
def test_kl_coefficient_when_the_divergence_is_off_then_grows_in_proportion(
    kl: float, following: float
) -> None:
    assert next_kl_coef(0.5, kl, KL) == pytest.approx(following, abs=1e-12)


def test_kl_coefficient_when_followed_for_long_then_is_that_of_the_published_code() -> None:
    """lm-human-preferences: value *= 1 + clip(kl / target - 1, -0.2, 0.2) * steps / horizon."""
    rng = random.Random(7)
    measured = [rng.uniform(0.0, 0.05) for _ in range(200)]
    value, steps, horizon = 0.15, 64, 640
    coefficients = Coefficients(0.15, 0.0)
    loss = LossSpec(kl=KlSpec(coef=0.15, adaptive=AdaptiveKlSpec(target=0.02, gain=0.1)))
    for kl in measured:
        proportional = max(-0.2, min(0.2, kl / 0.02 - 1))
        value *= 1 + proportional * steps / horizon
        coefficients = coefficients.after({"kl_ref": kl}, loss)
    assert math.isclose(coefficients.kl, value, rel_tol=1e-9)
    assert coefficients.metrics(loss) == {"kl_coef": coefficients.kl}


@pytest.mark.parametrize(
    ("coef", "entropy", "following"),
    [
        (0.010, 0.2, 0.015),  # too little entropy
        (0.010, 0.4, 0.005),  # too much
        (0.010, 0.3, 0.010),  # on target
        (0.018, 0.2, 0.020),  # not above max_coef
        (0.002, 0.4, 0.000),  # not below 0: a negative bonus would lower the entropy
    ],
)
def test_entropy_coefficient_when_the_entropy_is_off_then_moves_by_delta(
    coef: float, entropy: float, following: float
) -> None:
    assert next_entropy_coef(coef, entropy, ENTROPY) == pytest.approx(following, abs=1e-12)


def test_entropy_bonus_when_the_entropy_is_above_the_target_then_does_not_count() -> None:
    loss = LossSpec(entropy_coef=0.01, adaptive_entropy=ENTROPY)
    first = Coefficients.first(loss)
    low = first.after({"entropy": 0.2}, loss)
    high = low.after({"entropy": 0.4}, loss)
    again = high.after({"entropy": 0.3}, loss)
    assert [first.bonus, low.bonus, high.bonus] == pytest.approx([0.01, 0.015, 0.0])
    # What was learnt of the coefficient is kept while it does not count.
    assert [high.entropy, again.bonus] == pytest.approx([0.01, 0.01])
    assert again.metrics(loss) == {"entropy_coef": again.bonus}


def test_coefficients_when_nothing_was_measured_then_stay() -> None:
    loss = LossSpec(kl=KlSpec(coef=0.1, adaptive=KL), adaptive_entropy=ENTROPY)
    assert Coefficients(0.1, 0.01).after({}, loss) == Coefficients(0.1, 0.01)


def test_coefficients_when_no_target_is_set_then_are_the_specs_and_are_not_reported() -> None:
    loss = LossSpec(entropy_coef=0.01, kl=KlSpec(coef=0.1))
    after = Coefficients.first(loss).after({"kl_ref": 9.0, "entropy": 0.0}, loss)
    assert (after.kl, after.bonus, after.metrics(loss)) == (0.1, 0.01, {})


def test_loss_when_coefficients_are_given_then_they_count_instead_of_the_specs() -> None:
    spec = LossSpec(entropy_coef=0.5, kl=KlSpec(coef=0.5, estimator="k2"))
    one = torch.ones(1, dtype=torch.float64)

    def loss(kl_coef: float | None, entropy_coef: float | None) -> float:
        inputs = LossInputs(
            trainer_logprobs_N=0.0 * one,
            rollout_logprobs_N=0.0 * one,
            advantages_N=one,
            sequence_N=torch.zeros(1, dtype=torch.int64),
            weights_N=one,
            entropy_N=3.0 * one,
            ref_logprobs_N=-2.0 * one,
            kl_coef=kl_coef,
            entropy_coef=entropy_coef,
        )
        return policy_loss(inputs, spec).loss_sum.item()

    # -A + coef * 2^2 / 2 - coef * 3.
    assert loss(None, None) == pytest.approx(-1 + 0.5 * 2 - 0.5 * 3)
    assert loss(0.1, 0.2) == pytest.approx(-1 + 0.1 * 2 - 0.2 * 3)
    assert loss(0.1, 0.0) == pytest.approx(-1 + 0.1 * 2)


def test_needs_when_an_entropy_is_aimed_at_then_its_gradient_is_asked_for_from_the_start() -> None:
    spec = AlgorithmSpec(kind="grpo", loss=LossSpec(adaptive_entropy=ENTROPY))
    assert Grpo(spec).needs.entropy
