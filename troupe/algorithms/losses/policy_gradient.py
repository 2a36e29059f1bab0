"""The plain policy gradient, without ratio or clip: advantages carry the whole weight.

Source: REINFORCE (Williams 1992).
"""

import torch

from troupe.algorithms.algorithm import LossInputs, LossOutput
from troupe.algorithms.losses.policy import rollout_drift


def policy_gradient(inputs: LossInputs) -> LossOutput:
    """Sum over tokens of -weight * A * log pi, with the metrics of rollout against trainer."""
    sums = rollout_drift(inputs)
    values: list[float] = torch.stack([v.double() for v in sums.values()]).tolist()
    loss_N = -inputs.advantages_N * inputs.trainer_logprobs_N
    return LossOutput((inputs.weights_N * loss_N).sum(), dict(zip(sums, values, strict=True)))
