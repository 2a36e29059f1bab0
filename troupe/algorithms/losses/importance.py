"""Truncated importance sampling between the engine that sampled and the trainer that learns.

The two evaluate the same weights with different kernels and rounding, so a token's probabilities
differ, and an update that ignores the difference is silently off-policy.

Source: "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (Yao et al. 2025);
truncation: Ionides 2008.
"""

import torch
from torch import Tensor

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses.surrogate import sequence_sums
from troupe.spec.algorithm import ImportanceSpec


def importance_weights(inputs: LossInputs, spec: ImportanceSpec) -> tuple[Tensor, Tensor]:
    """min(pi_old / pi_rollout, cap) of each token or completion, detached; and which were capped.

    Raises ValueError without ``old_logprobs_N``.
    """
    if inputs.old_logprobs_N is None:
        raise ValueError("importance weights need old_logprobs_N: the algorithm's needs.old")
    log_weight_N = (inputs.old_logprobs_N - inputs.rollout_logprobs_N).detach()
    if spec.level == "sequence":
        log_weight_N = sequence_sums(log_weight_N, inputs.sequence_N)
    weight_N = torch.exp(log_weight_N)
    return weight_N.clamp(max=spec.cap), weight_N > spec.cap
