"""Spreads a model's weights over the ranks with FSDP2.

Owns the calls of ``fully_shard``. Each decoder layer is gathered for its own computation only; the
rest (embeddings, norm, head, vision tower) is gathered while the model computes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer

from troupe_trainer.model.ranks.exchange import scattered

_T = TypeVar("_T")


class Sharded(nn.Module):
    """Runs work on ``module`` while its weights are gathered; gradients go back to their ranks."""

    def __init__(self, module: nn.Module, mesh: DeviceMesh) -> None:
        super().__init__()
        self.module = module
        for name, layer in module.named_modules():
            # A vision tower computes once for each image, and ranks have unequally many.
            if isinstance(layer, GradientCheckpointingLayer) and "visual" not in name.split("."):
                fully_shard(layer, mesh=mesh)
        # Without it the rest would stay gathered after a pass without gradient, and a restored
        # state be written to a copy.
        fully_shard(self, mesh=mesh, reshard_after_forward=True)

    def forward(self, work: Callable[[], Any]) -> Any:
        """The result of ``work``."""
        return work()


def fill(parameter: Tensor, value: Tensor) -> None:
    """Overwrite ``parameter`` with ``value``; of a spread one each rank writes its own part.

    Over ranks, rank 0 has the ``value`` and the others have one on "meta".
    """
    with torch.no_grad():
        if isinstance(parameter, DTensor):
            parameter.to_local().copy_(scattered(value, parameter))
        else:
            parameter.copy_(value)


def spread_like(parameter: Tensor, value: Tensor) -> Tensor:
    """``value`` on the device of ``parameter`` and, unless it is a scalar, spread as that is."""
    if not isinstance(parameter, DTensor):
        return value.to(parameter.device)
    local = scattered(value, parameter)
    if not value.dim():
        return local
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
