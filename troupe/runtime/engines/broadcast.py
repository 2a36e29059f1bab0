"""The extension of the Engine interface for weights broadcast over torch.distributed.

Owns the contract only: such an engine joins a group, and stages what it received like a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from troupe.runtime.weights.digest import TensorSum
from troupe.runtime.weights.group import BUCKET_BYTES, WeightGroup


@dataclass(frozen=True, slots=True)
class BroadcastWeights:
    """An announced broadcast of full weights: the tensors in sending order, and the group."""

    policy: str
    policy_version: int
    tensors: Sequence[TensorSum]
    group: WeightGroup
    timeout_s: float
    bucket_bytes: int = BUCKET_BYTES


@runtime_checkable
class BroadcastReceiver(Protocol):
    """An engine whose ranks can join a group. ``weight_ranks`` of them take part."""

    weight_ranks: int
    weight_backend: str

    async def receive(self, weights: BroadcastWeights) -> str:
        """Join, receive and stage; returns the tensors' digest.

        An engine that fails leaves the group, so that the others need not wait for it. It serves
        the active version on, unless it has room for one version only: that is lost then, and is
        sent again.
        """
        ...
