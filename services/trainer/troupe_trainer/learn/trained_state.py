"""Reads and writes a learner's state: trained parameters, Adam's moments, the random state, and
coefficients that follow a target.

Owns the names of a state's tensors. Over ranks, rank 0 holds the whole state, tensor by tensor, and
the others only their parts.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from troupe.algorithms.adaptive import Coefficients
from troupe.spec.algorithm import LossSpec
from troupe_trainer.model.ranks.exchange import gathered, shared
from troupe_trainer.model.ranks.shard import spread_like

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_COEFFICIENTS = "coefficients"


def read(parameters: Mapping[str, nn.Parameter], optimizer: Optimizer) -> dict[str, Tensor]:
    """Copies of all tensors on the CPU; over ranks, on rank 0 alone."""
    tensors: dict[str, Tensor] = {"rng": torch.get_rng_state()}
    for name, parameter in parameters.items():
        moments: Mapping[str, Tensor] = optimizer.state[parameter]
        values = {f"param/{name}": parameter} | {f"adam.{k}/{name}": v for k, v in moments.items()}
        for key, value in values.items():
            copy = gathered(value.detach())
            if copy is not None:
                tensors[key] = copy
    return tensors


def write(
    tensors: Mapping[str, Tensor],
    parameters: Mapping[str, nn.Parameter],
    optimizer: Optimizer,
    load: Callable[[dict[str, Tensor]], None],
    *,
    is_spread: bool,
) -> None:
    """Continue from ``tensors``; ``load`` writes the parameters. Other ranks' are on "meta"."""
    rng = tensors["rng"]
    torch.set_rng_state(shared(rng) if is_spread else rng)
    load({name: tensors[f"param/{name}"] for name in parameters})
    optimizer.state.clear()
    for name, parameter in parameters.items():
        moments = {
            key: spread_like(parameter, tensors[f"adam.{key}/{name}"].clone())
            for key in _MOMENTS
            if f"adam.{key}/{name}" in tensors
        }
        if moments:
            optimizer.state[parameter] = moments


def coefficients(now: Coefficients, loss: LossSpec) -> dict[str, Tensor]:
    """The tensor of those that follow a target; none where all are the spec's."""
    if not now.metrics(loss):
        return {}
    return {
        _COEFFICIENTS: torch.tensor([now.kl, now.entropy, float(now.is_low)], dtype=torch.float64)
    }


def coefficients_in(
    tensors: Mapping[str, Tensor], loss: LossSpec, *, is_spread: bool
) -> Coefficients:
    """Those of ``coefficients``; the spec's where a checkpoint has none."""
    if _COEFFICIENTS not in tensors:
        return Coefficients.first(loss)
    saved = tensors[_COEFFICIENTS]
    kl, entropy, is_low = (shared(saved) if is_spread else saved).tolist()
    return Coefficients(kl, entropy, bool(is_low))
