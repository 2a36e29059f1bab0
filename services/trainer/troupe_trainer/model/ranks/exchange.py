"""Moves tensors between the ranks over the process group, in chunks, so that size has no limit.

Rank 0 gives and takes; each other rank holds no more than its own part. Tensors travel on the CPU,
over gloo. Owns the collectives for data; sums over ranks are in ``group``, those of a
computation belong to FSDP2.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from troupe.errors import JobFailedError

CHUNK_BYTES = 64 << 20
"""Largest message."""
FIRST = 0
"""The rank that gives and takes."""


def send(tensor: Tensor, to: int) -> None:
    """Send a contiguous CPU ``tensor``; the receiver knows its size and dtype."""
    for chunk in _chunks(tensor):
        dist.send(chunk, to)


def receive(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor that rank 0 sends."""
    tensor = torch.empty(shape, dtype=dtype)
    for chunk in _chunks(tensor):
        dist.recv(chunk, FIRST)
    return tensor


def shared(tensor: Tensor) -> Tensor:
    """Rank 0's ``tensor`` on every rank; the others give one of its shape, may be on "meta"."""
    is_here = dist.get_rank() == FIRST
    local = (
        tensor.detach().cpu().contiguous() if is_here else torch.empty_like(tensor, device="cpu")
    )
    for chunk in _chunks(local):
        dist.broadcast(chunk, FIRST)
    return local


def is_spread(tensor: Tensor) -> bool:
    """Whether each rank holds some rows of ``tensor``: then gathering it takes all ranks."""
    return isinstance(tensor, DTensor)


def gathered(tensor: Tensor) -> Tensor | None:
    """The whole of ``tensor`` on rank 0, as a copy on the CPU; None on the others."""
    is_first = not dist.is_initialized() or dist.get_rank() == FIRST
    if not isinstance(tensor, DTensor):
        return tensor.detach().cpu().clone() if is_first else None
    local = tensor.to_local().detach().cpu().contiguous()
    if not is_first:
        if dist.get_rank() < num_shards(tensor):  # the others have copies of what these have
            send(local, FIRST)
        return None
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    for rank, part in enumerate(_parts(whole, tensor)):
        if rank == FIRST:
            part.copy_(local)
            continue
        for chunk in _chunks(part):
            dist.recv(chunk, rank)
    return whole


def scattered(value: Tensor, like: Tensor) -> Tensor:
    """This rank's part of rank 0's ``value``, which is spread over the ranks as ``like`` is.

    The other ranks give a ``value`` on "meta". A scalar, and the value of a tensor that is not
    spread, comes whole.
    """
    if not isinstance(like, DTensor) or not value.dim():
        return shared(value).to(like.device)
    held = like.to_local()
    if dist.get_rank() == FIRST:
        parts = list(_parts(value.contiguous(), like))
        for rank in range(dist.get_world_size()):
            if rank != FIRST:
                send(parts[rank % len(parts)], rank)
        local = parts[FIRST]
    else:
        local = receive(tuple(held.shape), value.dtype)
    return local.to(held.device)


def gathered_numbers(values: Tensor, sizes: list[int]) -> list[Tensor] | None:
    """On rank 0 each rank's vector ``values``, whose lengths are ``sizes``; None on the others."""
    if dist.get_rank() != FIRST:
        send(values, FIRST)
        return None
    found = [values]
    for rank, size in enumerate(sizes[1:], start=1):
        part = torch.empty(size, dtype=values.dtype)
        for chunk in _chunks(part):
            dist.recv(chunk, rank)
        found.append(part)
    return found


def num_shards(like: DTensor) -> int:
    """Over how many ranks the rows of ``like`` are spread. The first so many have all of them."""
    if tuple(like.placements) not in ((Shard(0),), (Replicate(), Shard(0))):
        raise JobFailedError(
            f"A tensor is spread as {like.placements} over {like.device_mesh}; the trainer moves "
            "tensors that are spread by rows over the last dimension of ranks."
        )
    return like.device_mesh.size(like.device_mesh.ndim - 1)


def rows_of(like: DTensor) -> tuple[int, int]:
    """First and last row that this rank holds of ``like``."""
    size = num_shards(like)
    return _rows(like.shape[0], dist.get_rank() % size, size)


def _parts(whole: Tensor, like: DTensor) -> Iterator[Tensor]:
    """Views of the rows of ``whole`` that each shard of ``like`` has."""
    size = num_shards(like)
    for shard in range(size):
        first, last = _rows(len(whole), shard, size)
        yield whole[first:last]


def _rows(count: int, shard: int, num_shards: int) -> tuple[int, int]:
    """As FSDP2 deals them: all shards have equally many, but for the last ones."""
    most = -(-count // num_shards)
    return min(shard * most, count), min((shard + 1) * most, count)


def _chunks(tensor: Tensor) -> Iterator[Tensor]:
    """Views of ``tensor`` of at most CHUNK_BYTES each, in order."""
    flat: Any = tensor.view(-1)
    if flat.numel():
        yield from flat.split(max(1, CHUNK_BYTES // flat.element_size()))
