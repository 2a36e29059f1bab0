"""Spreads a model's weights over the ranks with FSDP2.

Owns the calls of ``fully_shard``. Each decoder layer is gathered for its own computation only; the
rest (embeddings, norm, head) is gathered while the model computes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

_T = TypeVar("_T")


class Sharded(nn.Module):
    """Runs work on ``module`` while its weights are gathered; gradients go back to their ranks."""

    def __init__(self, module: nn.Module, mesh: DeviceMesh) -> None:
        super().__init__()
        self.module = module
        for layer in module.modules():
            if isinstance(layer, GradientCheckpointingLayer):
                fully_shard(layer, mesh=mesh)
        fully_shard(self, mesh=mesh)

    def forward(self, work: Callable[[], Any]) -> Any:
        """The result of ``work``."""
        return work()


def fill(parameter: Tensor, value: Tensor) -> None:
    """Overwrite ``parameter`` with ``value``; a spread one takes its own part."""
    with torch.no_grad():
        parameter.copy_(spread_like(parameter, value))


def spread_like(parameter: Tensor, value: Tensor) -> Tensor:
    """``value`` on the device of ``parameter`` and, unless it is a scalar, spread as that is."""
    if not isinstance(parameter, DTensor) or isinstance(value, DTensor) or not value.dim():
        return value.to(parameter.device)
    local = value.to(parameter.to_local().device)
    return distribute_tensor(local, parameter.device_mesh, parameter.placements)
