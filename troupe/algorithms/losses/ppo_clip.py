"""PPO's clipped surrogate over tokens, with separate lower and upper ranges and a dual clip.

Source: PPO (arXiv 1707.06347), Equation 7; the separate upper range: DAPO (arXiv 2503.14476),
Equation 10; the dual clip: Ye et al. (arXiv 1912.09729), Equation 5.

Shape suffix: N trained tokens.
"""

import torch
from torch import Tensor

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses.surrogate import Surrogate, clip_counts
from troupe.spec.algorithm import LossSpec


def ppo_clip(inputs: LossInputs, log_ratio_N: Tensor, spec: LossSpec) -> Surrogate:
    """-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A) of each token.

    With ``dual_clip`` c, a negative advantage gets max(that minimum, c * A): the pull
    of a token that has become far more likely is bounded.

    Example: ratio 1.5 and A = 1 clip to a loss of -1.2, with no gradient.
    """
    low, high = spec.clip_range
    advantages_N = inputs.advantages_N
    ratio_N = torch.exp(log_ratio_N)
    clipped_N = torch.clamp(ratio_N, 1.0 - low, 1.0 + high)
    objective_N = torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
    sums = clip_counts(ratio_N, advantages_N, low, high)
    if spec.dual_clip is not None:
        is_negative_N = advantages_N < 0.0
        limited_N = torch.maximum(objective_N, spec.dual_clip * advantages_N)
        objective_N = torch.where(is_negative_N, limited_N, objective_N)
        sums["dual_clip_fraction"] = (is_negative_N & (ratio_N > spec.dual_clip)).sum()
    return Surrogate(-objective_N, sums)
