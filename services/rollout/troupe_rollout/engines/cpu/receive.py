"""Receives full weights by torch.distributed into this process's memory.

Owns the receiving rank and its memberships: one group for each policy, kept between pushes. Gives
tensors out one by one and holds two buckets, and the one that the caller takes from.
"""

import mmap
import time
from collections import deque
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import TCPStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

from troupe.errors import UnavailableError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.faults import reached
from troupe.runtime.weights.digest import TensorSum
from troupe.runtime.weights.group import (
    TORCH_DTYPES,
    Broadcasts,
    buckets,
    join_group,
    size_of,
)

ALIGNED = 64
"""Bytes at a multiple of which a tensor begins."""


class Memberships:
    """The groups that this process is in, by policy. Used by one thread for each policy."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, Any, Any]] = {}

    def receive(self, weights: BroadcastWeights) -> Generator[tuple[str, Tensor]]:
        """Each tensor by name as it arrives, in the announced order. Blocks.

        The caller takes all of them; if it does not, or if one does not come, the group is left.

        Raises:
            UnavailableError: the group did not form or is not joined, or a member disconnected.
        """
        problem, is_done = "", False
        try:
            yield from _tensors(weights, self._communicator(weights))
            is_done = True
        except (RuntimeError, KeyError) as error:  # torch raises its own kinds of RuntimeError
            problem = str(error) or repr(error)
        finally:
            if not is_done:
                # Its connections close: nobody waits for this rank.
                self.leave(weights.policy, weights.group.name)
        if problem:  # outside the handler: a traceback would keep the connections
            group = weights.group
            raise UnavailableError(
                f"Weights of policy '{weights.policy}' version {weights.policy_version} did not "
                f"come through group '{group.name}' at {group.host}:{group.port} ({problem}). Form "
                "a new group and send them again."
            )

    def leave(self, policy: str, name: str = "") -> None:
        """Leave the policy's group; only the one called ``name``, where that is given."""
        held = self._held.get(policy)
        if held is not None and name in ("", held[0]):
            del self._held[policy]

    def close(self) -> None:
        """Leave all groups."""
        self._held.clear()

    def _communicator(self, weights: BroadcastWeights) -> Any:
        group, held = weights.group, self._held.get(weights.policy)
        if group.is_formed:
            if held is None or held[0] != group.name:
                raise RuntimeError("this replica is not in it")
            return held[1]
        self.leave(weights.policy)
        limit_s = weights.timeout_s
        store = TCPStore(group.host, group.port, None, False, timedelta(seconds=limit_s))
        rank = group.rank_offset
        communicator = join_group(distributed_c10d, store, group, rank, timeout_s=limit_s)
        self._held[weights.policy] = (group.name, communicator, store)
        return communicator


def _tensors(weights: BroadcastWeights, communicator: Any) -> Iterator[tuple[str, Tensor]]:
    deadline = time.monotonic() + weights.timeout_s
    runs = deque(buckets(weights.tensors, weights.bucket_bytes))
    coming = Broadcasts(distributed_c10d, communicator, timeout_s=weights.timeout_s)
    under_way = deque([_started(coming, runs.popleft())])
    while under_way:
        if runs:
            under_way.append(_started(coming, runs.popleft()))
        for tensor in under_way.popleft():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not done within {weights.timeout_s:g} s")
            yield tensor.name, coming.take()
            if tensor is weights.tensors[0]:
                reached("rollout.weights_begun", weights.policy_version)


def _started(coming: Broadcasts, run: list[TensorSum]) -> list[TensorSum]:
    """Receive a bucket into memory of its own, which the system takes back in one piece.

    Not by malloc, which takes it from what is free in the heap where it finds so much there, and
    keeps its pages: up to 500 MB of them, with 1 GB of weights.
    """
    sizes = [-(-size_of(tensor) // ALIGNED) * ALIGNED for tensor in run]
    places = torch.frombuffer(mmap.mmap(-1, sum(sizes)), dtype=torch.uint8).split(sizes)
    for tensor, place in zip(run, places, strict=True):
        dtype: torch.dtype = getattr(torch, TORCH_DTYPES[tensor.dtype])
        coming.start(place[: size_of(tensor)].view(dtype).view(tensor.shape))
    return run
