"""Weights become a file, also where no thread can be started any more."""

import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

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
