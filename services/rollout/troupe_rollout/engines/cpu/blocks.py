"""Memory for the weights of versions: one block a version, used again by a later one.

A version's tensors one by one on the heap leave holes when it goes, which the next one fills in
part: with a model of 538 MB the heap had 400 MB more than two versions. A block has no holes, and
its pages are fetched once. Owns the blocks; never knows which version is in one.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ALIGNED = 64
"""Bytes at a multiple of which a tensor begins, as torch's own allocator has it."""


class WeightBlock:
    """Memory of one version, given to its parameters one after the other."""

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory
        self._used = 0

    def put(self, values: Tensor, old: Tensor) -> nn.Parameter:
        """``values`` here, with the dtype and memory layout of ``old``."""
        begin, size = self._used, old.numel() * old.element_size()
        self._used += _room(old)
        flat = self._memory[begin : begin + size].view(old.dtype)
        placed = flat.as_strided(old.shape, old.stride(), flat.storage_offset())
        return nn.Parameter(placed.copy_(values), requires_grad=False)


class WeightBlocks:
    """Blocks of one policy. A block whose last tensor is gone is kept for the next version.

    One is kept so at most, and none on another device than the CPU, where torch's allocator does
    it. A block is taken by a thread that builds a version, of which there may be several, and comes
    back on any.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: Tensor | None = None
        self.num_made = 0
        """How often the system was asked for memory."""

    def take(self, parameters: Sequence[Tensor]) -> WeightBlock:
        """A block with room for ``parameters`` of these sizes."""
        size = sum(_room(parameter) for parameter in parameters)
        memory, self._free = self._free, None  # no call in between: no other thread gets it too
        if memory is None or len(memory) != size:
            memory = None  # it goes before the new one comes
            self.num_made += 1
            memory = torch.empty(size, dtype=torch.uint8, device=self._device)
        if self._device.type != "cpu":
            return WeightBlock(memory)
        lent: Any = memory.numpy()  # lives as long as a tensor in it
        weakref.finalize(lent, self._keep, memory).atexit = False
        return WeightBlock(torch.from_numpy(lent))

    def _keep(self, memory: Tensor) -> None:
        self._free = memory


def _room(parameter: Tensor) -> int:
    """Bytes from the beginning of a parameter to that of the next one."""
    size = parameter.numel() * parameter.element_size()
    return -(-size // ALIGNED) * ALIGNED
