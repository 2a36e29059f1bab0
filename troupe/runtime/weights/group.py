"""The torch.distributed group in which weights are broadcast, and how trainer and engines join it.

Owns the names under which ranks find each other: those that SGLang's `init_weights_update_group`
uses, so that its ranks and Troupe's are one group. Never imports torch: its callers do.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from troupe.runtime.weights.digest import TensorSum
from troupe.runtime.weights.layout import ITEM_BYTES

BUCKET_BYTES = 64 * 2**20
"""Tensors of about so many bytes are under way; a receiver keeps room for two such buckets."""

TORCH_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""torch's name of each safetensors dtype that can be broadcast."""


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """One group. Rank 0 is the trainer, which also runs the store at ``host``:``port``.

    ``is_formed``: its members joined it for an earlier push and are in it still.

    Example: ``WeightGroup("10.0.0.3", 41234, "p-12-1", 3, rank_offset=1, backend="gloo")``.
    """

    host: str
    port: int
    name: str
    world_size: int
    rank_offset: int
    backend: str
    is_formed: bool = False


def size_of(tensor: TensorSum) -> int:
    """Bytes of a tensor."""
    return math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def buckets(tensors: Sequence[TensorSum], size: int) -> list[list[TensorSum]]:
    """Consecutive runs of tensors of about ``size`` bytes; a larger tensor forms its own run."""
    runs: list[list[TensorSum]] = []
    room = 0
    for tensor in tensors:
        needs = size_of(tensor)
        if not runs or needs > room:
            runs.append([])
            room = size
        runs[-1].append(tensor)
        room -= needs
    return runs


def join_group(c10d: Any, store: Any, group: WeightGroup, rank: int, *, timeout_s: float) -> Any:
    """The group's communicator; returns when every rank has joined.

    ``c10d`` is the caller's `torch.distributed.distributed_c10d`, ``store`` its TCPStore at the
    group's host and port. Nothing global is touched, so one process may hold several ranks.
    """
    timeout = timedelta(seconds=timeout_s)
    store.set_timeout(timeout)
    device = "cuda" if group.backend == "nccl" else "cpu"
    for prefix in (group.name, f"{group.name}/", f"{device}/"):
        store = c10d.PrefixStore(prefix, store)
    if group.backend == "nccl":
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return c10d.ProcessGroupNCCL(store, rank, group.world_size, options)
    return c10d.ProcessGroupGloo(store, rank, group.world_size, timeout)


class Broadcasts:
    """Broadcasts from rank 0, in order; the caller bounds how many are under way.

    Blocks; torch raises RuntimeError when a member is gone, or silent for ``timeout_s``.
    """

    def __init__(self, c10d: Any, communicator: Any, *, timeout_s: float) -> None:
        self._communicator = communicator
        self._options = c10d.BroadcastOptions()
        self._options.rootRank = self._options.rootTensor = 0
        self._options.timeout = timedelta(seconds=timeout_s)
        self._under_way: deque[tuple[Any, Any]] = deque()
        self.num_bytes = 0
        """Of the tensors that are under way."""

    def start(self, tensor: Any) -> None:
        """Start sending, or receiving, ``tensor``."""
        self._under_way.append((self._communicator.broadcast([tensor], self._options), tensor))
        self.num_bytes += tensor.nbytes

    def take(self) -> Any:
        """The oldest tensor that is under way, once it has arrived."""
        work, tensor = self._under_way.popleft()
        work.wait()
        self.num_bytes -= tensor.nbytes
        return tensor

    def __len__(self) -> int:
        """Tensors that are under way."""
        return len(self._under_way)
