"""The torch.distributed group in which weights are broadcast, and how trainer and engines join it.

Owns the names under which ranks find each other: those that SGLang's `init_weights_update_group`
uses, so that its ranks and Troupe's are one group. Never imports torch: its callers do.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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

    Example: ``WeightGroup("10.0.0.3", 41234, "p-12-1", 3, rank_offset=1, backend="gloo")``.
    """

    host: str
    port: int
    name: str
    world_size: int
    rank_offset: int
    backend: str


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


def broadcast(c10d: Any, communicator: Any, tensor: Any) -> Any:
    """Start sending ``tensor`` from rank 0, or receiving it; call ``wait()`` on the result."""
    options = c10d.BroadcastOptions()
    options.rootRank = 0
    options.rootTensor = 0
    return communicator.broadcast([tensor], options)
