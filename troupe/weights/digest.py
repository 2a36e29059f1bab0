"""One digest for a set of named tensors, whatever file, order or alignment they come in.

Owns the algorithm only: SHA-256 over the tensors sorted by name, each as length-prefixed name,
dtype and shape, then its raw little-endian bytes. Never reads files.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor as bytes. ``dtype`` is the safetensors name; ``data`` is C-contiguous.

    Example: ``TensorView("lm_head.weight", "F32", (64, 32), memoryview(array).cast("B"))``.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    data: bytes | memoryview


def tensor_digest(tensors: Iterable[TensorView]) -> str:
    """Hex SHA-256 over ``tensors``, independent of their order.

    Example: ``tensor_digest(file_tensors(path)) == tensor_digest(reversed(list(...)))``.
    """
    digest = hashlib.sha256(b"troupe.tensors.v1")
    for tensor in sorted(tensors, key=lambda item: item.name):
        for text in (tensor.name.encode(), tensor.dtype.encode()):
            digest.update(struct.pack("<Q", len(text)))
            digest.update(text)
        digest.update(struct.pack(f"<{len(tensor.shape) + 1}Q", len(tensor.shape), *tensor.shape))
        digest.update(tensor.data)
    return digest.hexdigest()
