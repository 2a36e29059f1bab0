"""Weights on the wire: safetensors headers, digests, manifests and chunks. No torch.

The names here are the public ones; everything works on files and byte buffers, so that the
trainer, the engine and a notebook agree on what "the same weights" means.
"""

from troupe.weights.digest import TensorView, tensor_digest
from troupe.weights.layout import TensorLayout, file_tensors, read_layout
from troupe.weights.manifest import (
    CHUNK_BYTES,
    adapter_scale,
    build_manifest,
    check_declared,
    iter_chunks,
    verify_file,
)

__all__ = [
    "CHUNK_BYTES",
    "TensorLayout",
    "TensorView",
    "adapter_scale",
    "build_manifest",
    "check_declared",
    "file_tensors",
    "iter_chunks",
    "read_layout",
    "tensor_digest",
    "verify_file",
]
