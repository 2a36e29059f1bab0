"""Weights become a file, also where no thread can be started any more."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from troupe.errors import UnavailableError
from troupe_trainer.checkpoint import export
from troupe_trainer.checkpoint.export import write_weights


def test_weights_are_written_where_memory_ran_out_for_threads_since_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"b": torch.arange(6.0).view(2, 3), "a": torch.ones(2, dtype=torch.bfloat16)}
    write_weights(tensors, tmp_path / "first.safetensors")

    def refuse(_: threading.Thread) -> None:
        raise MemoryError("no stack for a thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sums = write_weights(tensors, tmp_path / "second.safetensors")

    assert [each.name for each in sums] == ["b", "a"]
    for name, tensor in load_file(tmp_path / "second.safetensors").items():
        assert torch.equal(tensor, tensors[name])


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), UnavailableError), (MemoryError(), None)],
)
def test_weights_when_the_disk_is_full_in_the_middle_then_nothing_of_them_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[Exception] | None,
) -> None:
    def fills_up(file: Any, data: memoryview) -> None:
        file.write(data[: len(data) // 2])
        raise error

    monkeypatch.setattr(export, "_write_all", fills_up)
    with pytest.raises(raised or type(error)):
        write_weights({"w": torch.zeros(1 << 10)}, tmp_path / "p-v00001.safetensors")
    assert list(tmp_path.iterdir()) == []
