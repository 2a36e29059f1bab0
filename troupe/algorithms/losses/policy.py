"""The loss that a spec asks for: surrogate, importance weights, KL and entropy, summed over tokens.

Owns the composition; each part is a module beside this one. A new surrogate needs a module here,
a line in ``_SURROGATES`` and its name in ``LossSpec.kind`` (troupe/spec/algorithm.py). Shape
suffix: N trained tokens.
"""

from dataclasses import replace

import torch
from torch import Tensor

from troupe.algorithms.algorithm import LossInputs, LossOutput
from troupe.algorithms.losses.cispo import cispo
from troupe.algorithms.losses.gspo import gspo
from troupe.algorithms.losses.importance import importance_weights
from troupe.algorithms.losses.kl import kl_estimate
from troupe.algorithms.losses.ppo_clip import ppo_clip
from troupe.spec.algorithm import LossSpec

_SURROGATES = {"ppo_clip": ppo_clip, "gspo": gspo, "cispo": cispo}


def policy_loss(inputs: LossInputs, spec: LossSpec) -> LossOutput:
    """Sum over tokens of weight * (importance * surrogate + coef * KL - coef * entropy).

    The ratio is relative to the rollout's probabilities. With importance weights, which correct for
    the difference between engine and trainer, it is relative to the trainer's own probabilities at
    the beginning of the step. Advantages are first multiplied by the spec's weight of their sign.

    Metrics are unweighted sums over tokens: ``ratio_mean``, ``kl_rollout_k1`` and ``kl_rollout``
    (k3; of KL(rollout || trainer)), the surrogate's own, and ``kl_ref`` and
    ``importance_capped`` and ``importance_masked`` where they are computed.
    """
    inputs = replace(inputs, advantages_N=_weighed(inputs.advantages_N, spec))
    behaviour_N = _behaviour(inputs, spec)
    log_ratio_N = inputs.trainer_logprobs_N - behaviour_N
    surrogate = _SURROGATES[spec.kind](inputs, log_ratio_N, spec)
    sums = rollout_drift(inputs) | surrogate.metric_sums
    loss_N = surrogate.loss_N
    if spec.importance is not None:
        weights_N, weight_sums = importance_weights(inputs, spec.importance)
        loss_N = loss_N * weights_N
        sums |= weight_sums
    if spec.kl.coef > 0.0 and inputs.ref_logprobs_N is not None:
        # The reward is taxed by the KL of what was sampled. On the same samples weights that have
        # moved give another number, which under k1 falls as they move away.
        is_taxed = spec.kl.where == "reward"
        policy_N = inputs.rollout_logprobs_N if is_taxed else inputs.trainer_logprobs_N
        kl_N = kl_estimate(policy_N, inputs.ref_logprobs_N, spec.kl.estimator)
        sums["kl_ref"] = kl_N.detach().sum()
        if spec.kl.where == "loss":
            coef = spec.kl.coef if inputs.kl_coef is None else inputs.kl_coef
            loss_N = loss_N + coef * kl_N
    bonus = spec.entropy_coef if inputs.entropy_coef is None else inputs.entropy_coef
    if inputs.entropy_N is not None and bonus > 0.0:
        loss_N = loss_N - bonus * inputs.entropy_N
    values: list[float] = torch.stack([v.double() for v in sums.values()]).tolist()
    return LossOutput((inputs.weights_N * loss_N).sum(), dict(zip(sums, values, strict=True)))


def _weighed(advantages_N: Tensor, spec: LossSpec) -> Tensor:
    """Source: Weighted-REINFORCE (arXiv 2506.01347), for rewards of 1 and -1."""
    negative, positive = spec.negative_advantage_weight, spec.positive_advantage_weight
    return torch.where(advantages_N < 0.0, negative * advantages_N, positive * advantages_N)


def _behaviour(inputs: LossInputs, spec: LossSpec) -> Tensor:
    if spec.importance is None:
        return inputs.rollout_logprobs_N
    if inputs.old_logprobs_N is None:
        raise ValueError("importance weights need old_logprobs_N: the algorithm's needs.old")
    return inputs.old_logprobs_N


def rollout_drift(inputs: LossInputs) -> dict[str, Tensor]:
    """How far the trainer is from the sampled distribution.

    Source: estimators k1 and k3 of Schulman, "Approximating KL Divergence" (2020).
    """
    with torch.no_grad():
        log_ratio_N = inputs.trainer_logprobs_N - inputs.rollout_logprobs_N
        ratio_N = torch.exp(log_ratio_N)
        return {
            "ratio_mean": ratio_N.sum(),
            "kl_rollout_k1": -log_ratio_N.sum(),
            "kl_rollout": (ratio_N - 1.0 - log_ratio_N).sum(),
        }
