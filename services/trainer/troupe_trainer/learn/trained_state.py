"""Reads and writes a learner's state: trained parameters, Adam's moments, the random state.

Owns the names of a state's tensors. Over ranks, rank 0 holds the whole state, tensor by tensor, and
the others only their parts.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from troupe_trainer.model.ranks.exchange import gathered, shared
from troupe_trainer.model.ranks.shard import spread_like

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


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
