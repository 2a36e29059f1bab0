"""Receives full weights by torch.distributed into this process's memory.

Owns the receiving rank. The code that stages them compares them with what was announced.
"""

import time
from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import TCPStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

from troupe.errors import UnavailableError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.weights.group import TORCH_DTYPES, broadcast, join_group


def receive_tensors(weights: BroadcastWeights) -> dict[str, Tensor]:
    """Join the group and take every tensor in turn. Blocks.

    Raises:
        UnavailableError: the group did not form, or the trainer disconnected.
    """
    group, deadline = weights.group, time.monotonic() + weights.timeout_s
    tensors: dict[str, Tensor] = {}
    try:
        limit = timedelta(seconds=weights.timeout_s)
        store = TCPStore(group.host, group.port, None, False, limit)
        rank = group.rank_offset
        communicator = join_group(distributed_c10d, store, group, rank, timeout_s=weights.timeout_s)
        for tensor in weights.tensors:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not done within {weights.timeout_s:g} s")
            dtype: torch.dtype = getattr(torch, TORCH_DTYPES[tensor.dtype])
            tensors[tensor.name] = torch.empty(tensor.shape, dtype=dtype)
            broadcast(distributed_c10d, communicator, tensors[tensor.name]).wait()
    except (RuntimeError, KeyError) as error:  # torch raises its own kinds of RuntimeError
        raise UnavailableError(
            f"Weights of policy '{weights.policy}' version {weights.policy_version} did not come "
            f"through group '{group.name}' at {group.host}:{group.port} ({error}). The serving "
            "version is unchanged; send them again."
        ) from error
    return tensors
