"""Truncated importance sampling between the engine that sampled and the trainer that learns.

The two evaluate the same weights with different kernels and rounding, so a token's probabilities
differ, and an update that ignores the difference is silently off-policy.

Source: "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (Yao et al. 2025);
truncation: Ionides 2008; token mask: IcePop (arXiv 2510.18855); sequence and geometric masks: "When
Speed Kills Stability" (Liu et al. 2025).
"""

import torch
from torch import Tensor

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses.surrogate import sequence_sums
from troupe.spec.algorithm import ImportanceSpec, RatioMaskSpec


def importance_weights(
    inputs: LossInputs, spec: ImportanceSpec
) -> tuple[Tensor, dict[str, Tensor]]:
    """min(pi_old / pi_rollout, cap) of each token or completion, detached, and 0 where masked.

    The sums count the capped tokens (``importance_capped``) and, with a mask, the masked ones
    (``importance_masked``), which are not among the first. IcePop does not cap what it keeps: it is
    a mask by token with a ``cap`` of its ``high`` or more.

    Raises ValueError without ``old_logprobs_N``.
    """
    if inputs.old_logprobs_N is None:
        raise ValueError("importance weights need old_logprobs_N: the algorithm's needs.old")
    log_ratio_N = (inputs.old_logprobs_N - inputs.rollout_logprobs_N).detach()
    log_weight_N = log_ratio_N
    if spec.level == "sequence":
        log_weight_N = sequence_sums(log_ratio_N, inputs.sequence_N)
    weight_N, sums = torch.exp(log_weight_N), dict[str, Tensor]()
    if spec.mask is not None:
        is_kept_N = _is_kept(log_ratio_N, inputs.sequence_N, spec.mask)
        weight_N = torch.where(is_kept_N, weight_N, 0.0)
        sums["importance_masked"] = (~is_kept_N).sum()
    sums["importance_capped"] = (weight_N > spec.cap).sum()
    return weight_N.clamp(max=spec.cap), sums


def _is_kept(log_ratio_N: Tensor, sequence_N: Tensor, mask: RatioMaskSpec) -> Tensor:
    """Whether the ratio that decides about each token is inside the mask's band."""
    if mask.level != "token":
        total_N = sequence_sums(log_ratio_N, sequence_N)
        if mask.level == "geometric":
            total_N = total_N / sequence_sums(torch.ones_like(log_ratio_N), sequence_N)
        log_ratio_N = total_N
    ratio_N = torch.exp(log_ratio_N)
    return (ratio_N >= mask.low) & (ratio_N <= mask.high)
