"""Converts a trainer checkpoint into a peft adapter: renamed tensors and adapter_config.json.

Reads and writes the safetensors format (a JSON header and raw bytes), so the router needs no
torch. Owns the mapping from a trainer's parameter names to those of an adapter file.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from troupe.errors import ConflictError
from troupe.spec.policy import LoraSpec, PolicySpec

_PARAMETERS = "param/base_model."
_ADAPTER = ".default."
_MAX_HEADER = 100 << 20
_MAX_ADAPTER = 4 << 30


@dataclass(frozen=True, slots=True)
class Spliced:
    """A file assembled while it is sent: ``head``, then pieces (offset, length) of ``path``."""

    head: bytes
    path: Path
    pieces: Sequence[tuple[int, int]]

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return len(self.head) + sum(length for _, length in self.pieces)

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, a megabyte at most in memory."""
        yield self.head
        with self.path.open("rb") as file:
            for offset, length in self.pieces:
                file.seek(offset)
                yield from exactly(file, length)


def exactly(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The next ``size`` bytes of a file: a header has announced them."""
    left = size
    while left and (piece := file.read(min(left, 1 << 20))):
        left -= len(piece)
        yield piece
    if left:
        raise OSError(f"{file.name} shrank while it was sent")


def adapter_files(path: Path, policy: PolicySpec) -> list[tuple[str, bytes | Spliced]]:
    """adapter_config.json and adapter_model.safetensors of the checkpoint file at ``path``.

    Raises:
        ConflictError: the file holds no adapter.
    """
    header, begin = _read_header(path)
    names = sorted(
        n for n in header if n.startswith(_PARAMETERS) and ".lora_" in n and _ADAPTER in n
    )
    if not names or not isinstance(policy.train, LoraSpec):
        raise ConflictError(f"{path.name} holds no adapter; download it as state")
    size = sum(e - b for b, e in (header[n]["data_offsets"] for n in names))
    if size > _MAX_ADAPTER:
        raise ConflictError(f"the adapter in {path.name} is larger than {_MAX_ADAPTER} bytes")
    config = json.dumps(_config(names, policy), indent=2, sort_keys=True).encode()
    return [
        ("adapter_config.json", config),
        ("adapter_model.safetensors", _adapter(path, header, begin, names)),
    ]


def _adapter(path: Path, header: dict[str, Any], begin: int, names: list[str]) -> Spliced:
    """A safetensors file with only these tensors, under their names in an adapter."""
    wanted: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    pieces: list[tuple[int, int]] = []
    place = 0
    for name in names:
        start, end = header[name]["data_offsets"]
        pieces.append((begin + start, end - start))
        wanted[name.removeprefix("param/").replace(_ADAPTER, ".")] = {
            **header[name],
            "data_offsets": [place, place + end - start],
        }
        place += end - start
    text = json.dumps(wanted, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return Spliced(struct.pack("<Q", len(text)) + text, path, pieces)


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header and the place of the first tensor."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _MAX_HEADER:
            raise ConflictError(f"{path.name} is not a safetensors file")
        return json.loads(file.read(length)), 8 + length


def _config(names: list[str], policy: PolicySpec) -> dict[str, Any]:
    assert isinstance(policy.train, LoraSpec)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": policy.model,
        "r": policy.train.rank,
        "lora_alpha": policy.train.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted({n.partition(".lora_")[0].rpartition(".")[2] for n in names}),
    }
