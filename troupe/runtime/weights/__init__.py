"""Weights on the wire: safetensors headers, digests, manifests and chunks. No torch.

The names here are the public ones; everything works on files and byte buffers, so that the
trainer, the engine and a notebook agree on what "the same weights" means.
"""

from troupe.runtime.weights.digest import (
    TensorSum,
    TensorView,
    data_digest,
    digest_of_sums,
    sums_of,
    tensor_digest,
)
from troupe.runtime.weights.layout import TensorLayout, file_tensors, header_bytes_of, read_layout
from troupe.runtime.weights.manifest import (
    CHUNK_BYTES,
    adapter_scale,
    build_manifest,
    check_declared,
    iter_chunks,
    sums_in,
    verify_file,
    verify_layout,
)

__all__ = [
    "CHUNK_BYTES",
    "TensorLayout",
    "TensorSum",
    "TensorView",
    "adapter_scale",
    "build_manifest",
    "check_declared",
    "data_digest",
    "digest_of_sums",
    "file_tensors",
    "header_bytes_of",
    "iter_chunks",
    "read_layout",
    "sums_in",
    "sums_of",
    "tensor_digest",
    "verify_file",
    "verify_layout",
]
