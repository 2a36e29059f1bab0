"""Manifests: they describe a weight payload, and check whether a file is that payload.

Owns building, checking and chunking. Never loads tensors into a model and never opens sockets.
"""

import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from troupe.api.records.v1.records_pb2 import TensorEntry, WeightsManifest
from troupe.api.rollout.v1.rollout_pb2 import WeightsChunk
from troupe.errors import WeightsRejectedError
from troupe.runtime.weights.digest import TensorSum, digest_of_sums, sums_of
from troupe.runtime.weights.layout import file_tensors, header_sha256, read_layout

CHUNK_BYTES = 4 * 1024 * 1024
"""Default size of a chunk; the wire allows up to 16 MiB."""


def build_manifest(
    path: Path,
    *,
    policy: str,
    policy_version: int,
    kind: Literal["lora", "full"],
    adapter_config_json: str = "",
    job_id: str = "",
    sums: Sequence[TensorSum] | None = None,
) -> WeightsManifest:
    """The manifest of a safetensors file; raises WeightsRejectedError when it is malformed.

    ``sums`` are the digests that the file's writer computed; without them the file is read.
    """
    tensors = sums_of(file_tensors(path)) if sums is None else sums
    return WeightsManifest(
        policy=policy,
        policy_version=policy_version,
        kind=kind,
        adapter_config_json=adapter_config_json,
        size_bytes=path.stat().st_size,
        sha256=header_sha256(path),
        tensor_digest=digest_of_sums(tensors),
        tensors=[
            TensorEntry(name=t.name, dtype=t.dtype, shape=t.shape, digest=t.digest)
            for t in sorted(tensors, key=lambda tensor: tensor.name)
        ],
        job_id=job_id,
    )


def sums_in(manifest: WeightsManifest) -> list[TensorSum]:
    """The tensors that the manifest announces, with their digests."""
    return [TensorSum(t.name, t.dtype, tuple(t.shape), t.digest) for t in manifest.tensors]


def verify_file(path: Path, manifest: WeightsManifest) -> None:
    """Raise WeightsRejectedError unless everything matches; names the tensor at fault, if any."""
    verify_layout(path, manifest)
    announced = {entry.name: entry.digest for entry in manifest.tensors}
    for tensor in sums_of(file_tensors(path)):
        if tensor.digest != announced[tensor.name]:
            raise _rejected(
                manifest,
                f"the bytes of tensor '{tensor.name}' have digest {tensor.digest[:16]}, not "
                f"{announced[tensor.name][:16]}",
                tensor=tensor.name,
            )


def verify_layout(path: Path, manifest: WeightsManifest) -> None:
    """``verify_file`` without the tensors' bytes: size, header, names, dtypes and shapes."""
    size = path.stat().st_size
    if size != manifest.size_bytes:
        raise _rejected(manifest, f"{size} bytes arrived, {manifest.size_bytes} were announced")
    declared = {entry.name: _shape(entry.dtype, entry.shape) for entry in manifest.tensors}
    arrived = {tensor.name: _shape(tensor.dtype, tensor.shape) for tensor in read_layout(path)}
    for name in sorted(declared.keys() | arrived.keys()):
        if declared.get(name) != arrived.get(name):
            raise _rejected(
                manifest,
                f"tensor '{name}' is {arrived.get(name, 'missing')} in the file and "
                f"{declared.get(name, 'missing')} in the manifest",
                tensor=name,
            )
    if (sha256 := header_sha256(path)) != manifest.sha256:
        raise _rejected(manifest, f"the header's SHA-256 is {sha256}, not {manifest.sha256}")


def check_declared(manifest: WeightsManifest, *, max_bytes: int) -> None:
    """Raise WeightsRejectedError when a manifest can't be right, before any byte is accepted."""
    if manifest.kind not in ("lora", "full"):
        raise _rejected(manifest, f"kind '{manifest.kind}' is neither 'lora' nor 'full'")
    if not 0 < manifest.size_bytes <= max_bytes:
        raise _rejected(
            manifest,
            f"{manifest.size_bytes} bytes are announced and this replica takes 1 to {max_bytes}",
        )
    if not manifest.tensors:
        raise _rejected(manifest, "it lists no tensors")
    if (digest := digest_of_sums(sums_in(manifest))) != manifest.tensor_digest:
        raise _rejected(
            manifest,
            f"its tensors have digest {digest} and it says {manifest.tensor_digest}",
        )
    if manifest.kind == "lora":
        adapter_scale(manifest.adapter_config_json)


def parse_adapter_config(adapter_config_json: str) -> dict[str, Any]:
    """peft's adapter_config.json as a dict; raises WeightsRejectedError when it is not LoRA's."""
    try:
        config: dict[str, Any] = json.loads(adapter_config_json)
        if int(config["r"]) < 1 or not math.isfinite(float(config["lora_alpha"])):
            raise ValueError(f"r is {config['r']} and lora_alpha is {config['lora_alpha']}")
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WeightsRejectedError(
            f"adapter_config_json is not a LoRA configuration of peft ({error!r}). Send the "
            "adapter_config.json that save_pretrained writes."
        ) from error
    return config


def adapter_scale(adapter_config_json: str) -> float:
    """alpha / r of peft's adapter_config.json, or alpha / sqrt(r) with ``use_rslora``.

    Source: peft ``LoraLayer.update_layer``; rsLoRA arXiv 2312.03732, Eq. 4.
    """
    config = parse_adapter_config(adapter_config_json)
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def iter_chunks(path: Path, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[WeightsChunk]:
    """The file as consecutive chunks with their offsets and CRC-32."""
    offset = 0
    with path.open("rb") as file:
        while data := file.read(chunk_bytes):
            yield WeightsChunk(offset_bytes=offset, data=data, crc32=zlib.crc32(data))
            offset += len(data)


def _shape(dtype: str, shape: Any) -> str:
    return f"{dtype}{[int(size) for size in shape]}"


def _rejected(manifest: WeightsManifest, why: str, tensor: str = "") -> WeightsRejectedError:
    return WeightsRejectedError(
        f"Weights of policy '{manifest.policy}' version {manifest.policy_version} are refused: "
        f"{why}. The serving version is unchanged; send them again.",
        pointer=f"/tensors/{tensor}" if tensor else None,
    )
