"""What an engine adds to the seam when weights may come to it by torch.distributed.

Owns the contract only: such an engine joins a group, and what it received is staged like a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from troupe.runtime.weights.digest import TensorSum
from troupe.runtime.weights.group import WeightGroup


@dataclass(frozen=True, slots=True)
class BroadcastWeights:
    """Full weights on their way: what comes, in the order in which it comes, and through what."""

    policy: str
    policy_version: int
    tensors: Sequence[TensorSum]
    group: WeightGroup
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Received:
    """What was staged. ``wants_file``: only the engine's memory has it, and a restart needs it."""

    tensor_digest: str
    wants_file: bool


@runtime_checkable
class BroadcastReceiver(Protocol):
    """An engine whose ranks can join a group. ``weight_ranks`` of them take part."""

    weight_ranks: int
    weight_backend: str

    async def receive(self, weights: BroadcastWeights) -> Received:
        """Join, receive, stage; on any failure the active version goes on serving."""
        ...
