"""PPO's clipped surrogate over tokens, with separate lower and upper clip ranges.

Source: PPO (arXiv 1707.06347), Equation 7; the separate upper range: DAPO (arXiv 2503.14476),
Equation 10; KL estimators k1 and k3: Schulman, "Approximating KL Divergence" (2020).

Shape suffix: N trained tokens.
"""

import torch

from troupe.algorithms.contract import LossInputs, LossOutput
from troupe.spec.job import LossSpec


def ppo_clip(inputs: LossInputs, spec: LossSpec) -> LossOutput:
    """Sum over tokens of -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    ``ratio`` is trainer over rollout probability of the token. ``clip_fraction_low`` and
    ``clip_fraction_high`` count the tokens whose gradient the clip removes; ``kl_rollout_k1`` and
    ``kl_rollout`` (k3) estimate KL(rollout || trainer). All metrics are sums over tokens.
    """
    advantages_N = inputs.advantages_N
    log_ratio_N = inputs.trainer_logprobs_N - inputs.rollout_logprobs_N
    ratio_N = torch.exp(log_ratio_N)
    clipped_N = torch.clamp(ratio_N, 1.0 - spec.clip_low, 1.0 + spec.clip_high)
    loss_sum = -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N).sum()
    if inputs.entropy_N is not None and spec.entropy_coef > 0.0:
        loss_sum = loss_sum - spec.entropy_coef * inputs.entropy_N.sum()
    with torch.no_grad():
        is_low_N = (ratio_N < 1.0 - spec.clip_low) & (advantages_N < 0.0)
        is_high_N = (ratio_N > 1.0 + spec.clip_high) & (advantages_N > 0.0)
        sums = {
            "clip_fraction_low": is_low_N.sum(),
            "clip_fraction_high": is_high_N.sum(),
            "ratio_mean": ratio_N.sum(),
            "kl_rollout_k1": -log_ratio_N.sum(),
            "kl_rollout": (ratio_N - 1.0 - log_ratio_N).sum(),
        }
        values: list[float] = torch.stack([v.double() for v in sums.values()]).tolist()
    return LossOutput(loss_sum, dict(zip(sums, values, strict=True)))
