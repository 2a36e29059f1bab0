"""GSPO: one ratio for a whole completion, clipped as a whole.

Source: "Group Sequence Policy Optimization" (arXiv 2507.18071), Equations 5-7, in the token form
of its Section 4.3, whose value and gradient are those of the sequence form when completions are
averaged (aggregation "sequence").

Shape suffix: N trained tokens.
"""

import torch
from torch import Tensor

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses.surrogate import Surrogate, clip_counts, sequence_sums
from troupe.spec.algorithm import LossSpec


def gspo(inputs: LossInputs, log_ratio_N: Tensor, spec: LossSpec) -> Surrogate:
    """-min(s * A, clip(s) * A), where s is the geometric mean of a completion's token ratios.

    ``gspo_ratio`` sums s over tokens.

    Example: token ratios 2 and 1/2 have s = 1.
    """
    low, high = spec.clip_range
    lengths_N = sequence_sums(torch.ones_like(log_ratio_N), inputs.sequence_N)
    mean_N = sequence_sums(log_ratio_N.detach(), inputs.sequence_N) / lengths_N
    trainer_N = inputs.trainer_logprobs_N
    ratio_N = torch.exp(mean_N + trainer_N - trainer_N.detach())
    clipped_N = torch.clamp(ratio_N, 1.0 - low, 1.0 + high)
    advantages_N = inputs.advantages_N
    objective_N = torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
    sums = clip_counts(ratio_N, advantages_N, low, high)
    return Surrogate(-objective_N, sums | {"gspo_ratio": ratio_N.detach().sum()})
