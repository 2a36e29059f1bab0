import math

import pytest
import torch

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses import policy_loss
from troupe.spec.algorithm import LossSpec


def _inputs(
    ratios: list[float], advantages: list[float], entropy: list[float] | None = None
) -> tuple[LossInputs, torch.Tensor]:
    trainer = torch.log(torch.tensor(ratios, dtype=torch.float64)).requires_grad_()
    count = len(ratios)
    inputs = LossInputs(
        trainer_logprobs_N=trainer,
        rollout_logprobs_N=torch.zeros(count, dtype=torch.float64),
        advantages_N=torch.tensor(advantages, dtype=torch.float64),
        sequence_N=torch.arange(count),
        weights_N=torch.ones(count, dtype=torch.float64),
        entropy_N=None if entropy is None else torch.tensor(entropy, dtype=torch.float64),
    )
    return inputs, trainer


def test_loss_when_worked_by_hand_then_equal() -> None:
    # A = 1: ratio 1.5 clips to 1.2, ratio 0.5 keeps 0.5. A = -2: 0.5 clips to 0.8 -> 1.6,
    # ratio 1.5 keeps 3.0. Loss = -1.2 - 0.5 + 1.6 + 3.0 = 2.9.
    inputs, _ = _inputs([1.5, 0.5, 0.5, 1.5], [1.0, 1.0, -2.0, -2.0])
    out = policy_loss(inputs, LossSpec(clip_low=0.2, clip_high=0.2))
    assert out.loss_sum.item() == pytest.approx(2.9)
    assert out.metric_sums["clip_fraction_low"] == 1
    assert out.metric_sums["clip_fraction_high"] == 1
    assert out.metric_sums["ratio_mean"] == pytest.approx(4.0)


def test_gradient_when_clipped_then_zero_and_otherwise_minus_ratio_times_advantage() -> None:
    inputs, trainer = _inputs([1.5, 0.5, 0.5, 1.5], [1.0, 1.0, -2.0, -2.0])
    policy_loss(inputs, LossSpec()).loss_sum.backward()  # pyright: ignore[reportUnknownMemberType]
    assert trainer.grad is not None
    assert trainer.grad.tolist() == pytest.approx([0.0, -0.5, 0.0, 3.0])


def test_loss_when_clip_high_is_wider_then_the_upper_side_moves_alone() -> None:
    inputs, _ = _inputs([1.5, 0.5], [1.0, -1.0])
    out = policy_loss(inputs, LossSpec(clip_low=0.2, clip_high=0.4))
    assert out.loss_sum.item() == pytest.approx(-1.4 + 0.8)


def test_kl_when_ratio_is_two_then_k1_and_k3_are_the_textbook_numbers() -> None:
    inputs, _ = _inputs([2.0], [1.0])
    sums = policy_loss(inputs, LossSpec()).metric_sums
    assert sums["kl_rollout_k1"] == pytest.approx(-math.log(2))
    assert sums["kl_rollout"] == pytest.approx(1 - math.log(2))


def test_entropy_bonus_when_asked_then_lowers_the_loss() -> None:
    inputs, _ = _inputs([1.0, 1.0], [1.0, -1.0], entropy=[0.5, 1.5])
    out = policy_loss(inputs, LossSpec(entropy_coef=0.1))
    assert out.loss_sum.item() == pytest.approx(-0.2)


def test_loss_when_dual_clipped_then_a_negative_advantage_pulls_only_so_far() -> None:
    # A = -2 at ratio 10: 20 without, 3 * 2 = 6 with; A = 1 is as before.
    inputs, trainer = _inputs([10.0, 0.5], [-2.0, 1.0])
    out = policy_loss(inputs, LossSpec(dual_clip=3.0))
    assert out.loss_sum.item() == pytest.approx(6.0 - 0.5)
    assert out.metric_sums["dual_clip_fraction"] == 1
    out.loss_sum.backward()  # pyright: ignore[reportUnknownMemberType]
    assert trainer.grad is not None
    assert trainer.grad.tolist() == pytest.approx([0.0, -0.5])
