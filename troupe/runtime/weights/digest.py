"""One digest for a set of named tensors, independent of their file, order and alignment.

Owns the algorithm only: BLAKE3 over each tensor's raw little-endian bytes, and SHA-256 over the
list of length-prefixed name, dtype, shape and that digest, sorted by name. Each tensor has its
digest, so that a mismatch can name it; BLAKE3, since full weights are gigabytes. Never reads files.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blake3 import blake3

THREADS_FROM_BYTES = 1 << 22
"""Below this size one thread hashes a tensor faster."""


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor as bytes. ``dtype`` is the safetensors name; ``data`` is C-contiguous.

    Example: ``TensorView("lm_head.weight", "F32", (64, 32), memoryview(array).cast("B"))``.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class TensorSum:
    """One tensor without its bytes. ``digest`` is the hex BLAKE3 of them.

    Example: ``TensorSum("lm_head.weight", "F32", (64, 32), data_digest(view))``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


def data_digest(data: bytes | memoryview) -> str:
    """Hex BLAKE3 of a tensor's raw bytes."""
    threads = blake3.AUTO if len(data) >= THREADS_FROM_BYTES else 1
    return blake3(data, max_threads=threads).hexdigest()


def sums_of(tensors: Iterable[TensorView]) -> list[TensorSum]:
    """Every tensor with its digest, in the given order."""
    return [TensorSum(t.name, t.dtype, tuple(t.shape), data_digest(t.data)) for t in tensors]


def digest_of_sums(sums: Iterable[TensorSum]) -> str:
    """The digest of the whole set: hex SHA-256, independent of the order."""
    digest = hashlib.sha256(b"troupe.tensors.v2")
    for tensor in sorted(sums, key=lambda item: item.name):
        for text in (tensor.name, tensor.dtype, tensor.digest):
            digest.update(struct.pack("<Q", len(text.encode())))
            digest.update(text.encode())
        digest.update(struct.pack(f"<{len(tensor.shape) + 1}Q", len(tensor.shape), *tensor.shape))
    return digest.hexdigest()


def tensor_digest(tensors: Iterable[TensorView]) -> str:
    """Hex digest over ``tensors``, independent of their order.

    Example: ``tensor_digest(file_tensors(path)) == tensor_digest(reversed(list(...)))``.
    """
    return digest_of_sums(sums_of(tensors))
