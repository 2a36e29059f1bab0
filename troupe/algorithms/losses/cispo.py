"""CISPO: REINFORCE whose importance weight is clipped and held constant.

PPO's clip removes the gradient of a token whose ratio has left the range, which loses rare and
decisive tokens; here every token keeps its gradient and only its weight is bounded, by default from
above alone.

Source: MiniMax-M1 (arXiv 2506.13585), Equations 4-5.

Shape suffix: N trained tokens.
"""

import torch
from torch import Tensor

from troupe.algorithms.algorithm import LossInputs
from troupe.algorithms.losses.surrogate import Surrogate
from troupe.spec.algorithm import LossSpec


def cispo(inputs: LossInputs, log_ratio_N: Tensor, spec: LossSpec) -> Surrogate:
    """-stopgrad(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * log pi of each token.

    ``clip_fraction_low`` and ``clip_fraction_high`` count the tokens whose weight was cut.
    """
    low, high = spec.clip_range
    ratio_N = torch.exp(log_ratio_N).detach()
    weight_N = torch.clamp(ratio_N, 1.0 - low, 1.0 + high)
    sums = {
        "clip_fraction_low": (ratio_N < 1.0 - low).sum(),
        "clip_fraction_high": (ratio_N > 1.0 + high).sum(),
    }
    return Surrogate(-weight_N * inputs.advantages_N * inputs.trainer_logprobs_N, sums)
