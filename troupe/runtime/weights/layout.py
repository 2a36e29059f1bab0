"""The layout of a safetensors file, read without safetensors or torch.

Owns the header (8-byte little-endian length, JSON, raw data): writing one, and parsing one with
every bound checked, since the file may come from the network. Never loads tensors into memory.

Source: https://github.com/huggingface/safetensors, "Format".
"""

import hashlib
import json
import math
import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, cast

from troupe.errors import WeightsRejectedError
from troupe.runtime.weights.digest import TensorView

MAX_HEADER_BYTES = 100_000_000
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """One tensor of a file: bytes ``[begin, end)`` counted from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_layout(path: Path) -> list[TensorLayout]:
    """Every tensor of the file, in file order; raises WeightsRejectedError when it is malformed."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        header_bytes = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= header_bytes <= min(MAX_HEADER_BYTES, size - 8):
            raise _rejected(path, f"its header length is {header_bytes} in {size} bytes")
        header = file.read(header_bytes)
    tensors = [
        _entry(path, name, value, data_begin=8 + header_bytes)
        for name, value in _parse(path, header).items()
        if name != "__metadata__"
    ]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    position = 8 + header_bytes
    for tensor in tensors:
        if tensor.begin != position:
            raise _rejected(path, f"tensor '{tensor.name}' overlaps another or leaves a gap")
        position = tensor.end
    if position != size:
        raise _rejected(path, f"its tensors end at byte {position} but it has {size} bytes")
    return tensors


def header_bytes_of(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """The header of a file whose data are these (name, dtype, shape), one after the other.

    Example: ``file.write(header_bytes_of([("w", "F32", (2, 2))])); file.write(sixteen_bytes)``.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape in tensors:
        size = math.prod(shape) * ITEM_BYTES[dtype]
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def header_sha256(path: Path) -> str:
    """Hex SHA-256 of a well-formed file's header: its length and its JSON."""
    with path.open("rb") as file:
        prefix = file.read(8)
        return hashlib.sha256(prefix + file.read(struct.unpack("<Q", prefix)[0])).hexdigest()


def read_into(file: FileIO, data: memoryview, path: Path) -> None:
    """Fill ``data`` with the next bytes of ``file``; raises OSError where ``path`` has too few."""
    while data:
        count = file.readinto(data)
        if not count:
            raise OSError(f"{path} ends too early")
        data = data[count:]


def file_tensors(path: Path) -> Iterator[TensorView]:
    """The file's tensors in file order, mapped and not copied; the views keep the mapping alive."""
    layout = read_layout(path)
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    for tensor in layout:
        data = view[tensor.begin : tensor.end]
        yield TensorView(tensor.name, tensor.dtype, tensor.shape, data)


def _parse(path: Path, header: bytes) -> dict[str, Any]:
    def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    try:
        parsed: object = json.loads(header, object_pairs_hook=refuse_repeats)
    except (ValueError, RecursionError) as error:
        raise _rejected(path, f"its header is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise _rejected(path, "its header is not a JSON object")
    return cast("dict[str, Any]", parsed)


def _entry(path: Path, name: str, value: Any, *, data_begin: int) -> TensorLayout:
    try:
        dtype = str(value["dtype"])
        shape = tuple(_count(item) for item in value["shape"])
        begin, end = (_count(item) for item in value["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _rejected(path, f"the entry of tensor '{name}' is malformed ({error!r})") from error
    if dtype not in ITEM_BYTES:
        raise _rejected(path, f"tensor '{name}' has unknown dtype '{dtype}'")
    if end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise _rejected(
            path, f"tensor '{name}' {dtype}{list(shape)} does not fit {end - begin} bytes"
        )
    return TensorLayout(name, dtype, shape, data_begin + begin, data_begin + end)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _rejected(path: Path, why: str) -> WeightsRejectedError:
    return WeightsRejectedError(
        f"{path} is not a well-formed safetensors file: {why}. Export and send the weights again."
    )
