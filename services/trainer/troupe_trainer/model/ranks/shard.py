"""Spreads a model's weights over the ranks with FSDP2.

Owns the calls of ``fully_shard``. Each decoder layer is gathered for its own computation only; the
rest (embeddings, norm, head, vision tower) is gathered while the model computes. Over several nodes
each may hold all weights, spread over its own ranks (HSDP).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer

from troupe_trainer.model.ranks.exchange import rows_of, scattered
from troupe_trainer.model.stored import StoredTensors

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Spreading:
    """How weights are spread. ``dtype``: of the copy that is computed with, None for the weights'
    own; ``is_offloaded``: weights, gradients and moments are in the host's memory."""

    mesh: DeviceMesh
    dtype: torch.dtype | None = None
    is_offloaded: bool = False

    def policies(self) -> dict[str, Any]:
        """The arguments of ``fully_shard``."""
        # Gradients come in ``dtype``. They are added up in float32, over ranks and micro-batches.
        mixed = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32)
        has_gpu = self.mesh.device_type != "cpu"
        return {
            "mesh": self.mesh,
            "mp_policy": mixed if self.dtype else MixedPrecisionPolicy(),
            "offload_policy": (
                CPUOffloadPolicy(pin_memory=has_gpu) if self.is_offloaded else OffloadPolicy()
            ),
        }

    @property
    def device(self) -> torch.device:
        """Where each rank keeps its rows."""
        is_here = self.is_offloaded or self.mesh.device_type == "cpu"
        return torch.device("cpu") if is_here else torch.device("cuda", torch.cuda.current_device())


class Sharded(nn.Module):
    """Runs work on ``module`` while its weights are gathered; gradients go back to their ranks."""

    def __init__(self, module: nn.Module, spreading: Spreading) -> None:
        super().__init__()
        self.module = module
        self._device = spreading.device
        policies = spreading.policies()
        _bring(module, torch.device(spreading.mesh.device_type))
        for name, layer in module.named_modules():
            # A vision tower computes once for each image, and ranks have unequally many.
            if isinstance(layer, GradientCheckpointingLayer) and "visual" not in name.split("."):
                fully_shard(layer, **policies)
        # Without it the rest would stay gathered after a pass without gradient, and a restored
        # state be written to a copy.
        fully_shard(self, **policies, reshard_after_forward=True)

    def forward(self, work: Callable[[], Any]) -> Any:
        """The result of ``work``."""
        return work()

    def begin(self) -> None:
        """Let FSDP2 settle dtypes now, which it does in the first pass by what is trained then:
        that may be a pass with adapters switched off."""
        module: Any = self
        module._get_fsdp_state()._lazy_init()

    def read(self, places: Iterable[tuple[nn.Module, str, str]], stored: StoredTensors) -> None:
        """Give parameters on "meta" their numbers: this rank reads its own rows of ``stored``.

        ``places``: module and attribute of each parameter, and its name in the files.
        """
        for module, attribute, name in places:
            empty: Any = getattr(module, attribute)
            if not empty.is_meta:
                continue  # tied to one that was read
            held: Any = torch.empty_like(empty.detach(), device=self._device)
            held.to_local().copy_(stored.rows(name, *rows_of(empty)))
            filled = nn.Parameter(held, requires_grad=empty.requires_grad)
            self._replace(empty, filled)

    def _replace(self, empty: nn.Parameter, filled: nn.Parameter) -> None:
        """Put ``filled`` in the place of ``empty`` wherever that is: it may be tied."""
        for module in self.module.modules():
            for attribute, parameter in module.named_parameters(recurse=False):
                if parameter is empty:
                    setattr(module, attribute, filled)


def _bring(module: nn.Module, device: torch.device) -> None:
    """Move what has numbers to ``device``, where FSDP2 wants it: buffers, and new adapters."""
    for part in module.modules():
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
            if not tensor.is_meta:
                tensor.data = tensor.data.to(device)


def part_of(tensors: Mapping[str, Tensor], name: str, parameter: Tensor) -> Tensor:
    """A copy of what this rank holds of a tensor that is spread as ``parameter`` is.

    A rank reads its own rows of stored tensors. Of others rank 0 has the numbers and sends them;
    the other ranks have them on "meta". A scalar comes whole.
    """
    if isinstance(tensors, StoredTensors):
        if not isinstance(parameter, DTensor) or not tensors.shape(name):
            return tensors[name]
        return tensors.rows(name, *rows_of(parameter))
    value = tensors[name]
    return (scattered(value, parameter) if isinstance(parameter, DTensor) else value).clone()


def fill(parameter: Tensor, part: Tensor) -> None:
    """Overwrite what this rank holds of ``parameter``."""
    with torch.no_grad():
        (parameter.to_local() if isinstance(parameter, DTensor) else parameter).copy_(part)


def spread_like(parameter: Tensor, part: Tensor) -> Tensor:
    """The tensor of which this rank holds ``part``, as it holds ``parameter``; or a scalar."""
    if not isinstance(parameter, DTensor) or not part.dim():
        return part.to(parameter.device)
    spread: Any = torch.empty_like(parameter.detach(), dtype=part.dtype)
    spread.to_local().copy_(part)
    return spread


def own_part(tensor: Tensor, *, is_first: bool) -> Tensor | None:
    """A copy on the CPU of this rank's rows; what is not spread only rank 0 gives."""
    if isinstance(tensor, DTensor):
        return tensor.to_local().detach().cpu().clone()
    return tensor.detach().cpu().clone() if is_first else None
