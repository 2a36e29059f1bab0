"""Tensors in safetensors files, read and written by rows, so that no process holds what is others'.

A tensor lies in one file, or in parts: then each rank's file has the rows that it holds, and the
files in the order of their names are the whole. Bytes are read into the tensor that is asked for
and no file stays mapped, so reading costs no other memory. Never pickle.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from troupe.durable import sync
from troupe.runtime.weights.group import TORCH_DTYPES
from troupe.runtime.weights.layout import ITEM_BYTES, TensorLayout, read_into, read_layout

_POLL_S = 0.05
_DISK = ThreadPoolExecutor(1, "part")
"""Kept: where memory has run out, CPython waits for ever for a thread that could not start."""


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of ``files``; a tensor that is in several lies in them row after row.

    Raises OSError for a file that can't be read and WeightsRejectedError for a broken one.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._places: dict[str, list[tuple[Path, TensorLayout]]] = {}
        for path in self.files:
            for layout in read_layout(path):
                self._places.setdefault(layout.name, []).append((path, layout))

    def __getitem__(self, name: str) -> Tensor:
        return self.rows(name, 0, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        shapes = [layout.shape for _, layout in self._places[name]]
        return (sum(s[0] for s in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]

    def rows(self, name: str, first: int, last: int | None) -> Tensor:
        """Rows ``first`` up to ``last`` of a tensor on the CPU; with None all that follow.

        Example: ``rows("w", 0, None)`` is all of "w", also where that is a scalar.
        """
        shape = self.shape(name)
        dtype = getattr(torch, TORCH_DTYPES[self._places[name][0][1].dtype])
        if not shape:
            found = torch.empty(shape, dtype=dtype)
            self._read(name, found.reshape(1), 0)
            return found
        last = shape[0] if last is None else last
        found = torch.empty((last - first, *shape[1:]), dtype=dtype)
        self._read(name, found, first)
        return found

    def sample(self, name: str, step: int) -> Tensor:
        """Every ``step``-th number of a tensor that is in one file; the rest is not read."""
        ((path, layout),) = self._places[name]
        dtype = getattr(torch, TORCH_DTYPES[layout.dtype])
        count = math.prod(layout.shape)
        bits = np.memmap(
            path, dtype=f"u{ITEM_BYTES[layout.dtype]}", mode="r", offset=layout.begin, shape=count
        )
        return torch.from_numpy(bits[::step].copy()).view(dtype)

    def _read(self, name: str, into: Tensor, first: int) -> None:
        """Fill ``into`` with the rows from ``first`` on."""
        data = memoryview(cast("Any", into.view(-1).view(torch.uint8).numpy()))
        row = len(data) // max(1, len(into))
        begin = first * row
        for path, layout in self._places[name]:
            size = layout.end - layout.begin
            if data and begin < size:
                taken = min(len(data), size - begin)
                with path.open("rb", buffering=0) as file:
                    file.seek(layout.begin + begin)
                    read_into(file, data[:taken], path)
                data, begin = data[taken:], 0
            else:
                begin -= size
        if data:
            raise OSError(f"{', '.join(map(str, self.files))} lack rows of '{name}'")


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor; nothing is read."""
    if isinstance(tensors, StoredTensors):
        return {name: tensors.shape(name) for name in tensors}
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def write_part(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a file that appears when it is complete and on the disk."""
    draft = path.with_suffix(".draft")
    save_file(dict(tensors), draft)
    sync(draft)
    draft.replace(path)


def begin_part(tensors: Mapping[str, Tensor], path: Path) -> None:
    """``write_part`` on another thread; a failure is written beside it, for rank 0 to see."""
    _DISK.submit(_write_or_say, tensors, path)


def await_part(path: Path, *, deadline: float) -> None:
    """Return when the part at ``path`` is there.

    Raises:
        OSError: it could not be written, or not before ``deadline`` (of ``time.monotonic``).
    """
    while not path.exists():
        with suppress(FileNotFoundError):
            raise OSError(f"{path.name}: {_failed(path).read_text()}")
        if time.monotonic() > deadline:
            raise OSError(f"{path.name} was not written in time")
        time.sleep(_POLL_S)


def _write_or_say(tensors: Mapping[str, Tensor], path: Path) -> None:
    if not path.parent.exists():
        return  # rank 0 has given this checkpoint up
    try:
        write_part(tensors, path)
    except Exception as error:
        with suppress(OSError):
            path.with_suffix(".draft").unlink(missing_ok=True)
        with suppress(OSError):  # else rank 0 learns of it by its deadline
            _failed(path).write_text(str(error))


def _failed(path: Path) -> Path:
    return path.with_suffix(".failed")
