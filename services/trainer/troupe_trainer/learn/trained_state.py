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
from troupe_trainer.model.ranks.exchange import shared
from troupe_trainer.model.ranks.shard import part_of, spread_like
from troupe_trainer.model.stored import StoredTensors

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_COEFFICIENTS = "coefficients"


def read(
    parameters: Mapping[str, nn.Parameter],
    optimizer: Optimizer,
    copied: Callable[[Tensor], Tensor | None],
) -> dict[str, Tensor]:
    """What ``copied`` gives of each tensor on this rank: a copy on the CPU, or None."""
    values: dict[str, Tensor] = {"rng": torch.get_rng_state()}
    for name, parameter in parameters.items():
        values[f"param/{name}"] = parameter.detach()
        moments: Mapping[str, Tensor] = optimizer.state[parameter]
        values |= {f"adam.{key}/{name}": value for key, value in moments.items()}
    copies = {key: copied(value) for key, value in values.items()}
    return {key: copy for key, copy in copies.items() if copy is not None}


def write(
    tensors: Mapping[str, Tensor],
    parameters: Mapping[str, nn.Parameter],
    optimizer: Optimizer,
    load: Callable[[Mapping[str, Tensor], str], None],
    *,
    is_spread: bool,
) -> None:
    """Continue from ``tensors``; ``load`` writes the parameters of a prefix. See ``part_of``."""
    torch.set_rng_state(_whole(tensors, "rng", is_spread=is_spread))
    load(tensors, "param/")
    optimizer.state.clear()
    for name, parameter in parameters.items():
        moments = {
            key: spread_like(parameter, part_of(tensors, f"adam.{key}/{name}", parameter))
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
    kl, entropy, is_low = _whole(tensors, _COEFFICIENTS, is_spread=is_spread).tolist()
    return Coefficients(kl, entropy, bool(is_low))


def _whole(tensors: Mapping[str, Tensor], name: str, *, is_spread: bool) -> Tensor:
    """A small tensor on every rank; rank 0 has those that are not stored."""
    value = tensors[name]
    return shared(value) if is_spread and not isinstance(tensors, StoredTensors) else value
