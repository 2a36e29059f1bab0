"""Downloads and logs of a run folder: nothing of elsewhere, and nothing whole in memory."""

import io
import json
import struct
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from fleet_parts import SPEC

from troupe.errors import NotFoundError
from troupe_router.run.checkpoints import Archive, archive, checkpoint_list
from troupe_router.run.logs import log_after, log_list, log_tail
from troupe_router.run.peft_export import exactly

_TENSOR = "param/base_model.model.{}.lora_A.default.weight"


def checkpoint(run_dir: Path) -> Path:
    folder = run_dir / "checkpoints" / "step-00001"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"step": 1}')
    return folder


def write_adapter(path: Path, sizes: dict[str, int]) -> None:
    """Two bytes of each tensor's letter for each of its values; holes of the file stay holes."""
    header: dict[str, Any] = {}
    at = 0
    for name, size in sizes.items():
        entry = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        header[_TENSOR.format(name)] = entry
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "adapter").mkdir(parents=True)
    for name in ("adapter/x", "x.log", "p.safetensors", "state.json"):
        (folder / name).write_text("OUTSIDE\n")
    return folder


def test_adapter_when_it_is_large_then_is_sent_in_pieces(tmp_path: Path) -> None:
    run_dir = tmp_path / "demo-1"
    size = 64 << 20
    write_adapter(checkpoint(run_dir) / "p.safetensors", {"a": size, "b": 4, "c": size})
    tracemalloc.start()
    try:
        found = archive(run_dir, SPEC, "step-00001", "p", "peft")
        sent = sum(len(chunk) for chunk in found.chunks())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent == found.size_bytes > 2 * size
    assert peak < 8 << 20


def test_state_when_it_is_of_8_gib_or_more_then_is_packed(tmp_path: Path) -> None:
    run_dir, size = tmp_path / "demo-1", 9 << 30
    with (checkpoint(run_dir) / "p.safetensors").open("wb") as file:
        file.truncate(size)
    found = archive(run_dir, SPEC, "step-00001", "p", "state")
    header = tarfile.TarInfo.frombuf(next(found.chunks()), "utf-8", "strict")
    assert (header.name, header.size) == (f"{found.name}/p.safetensors", size)
    assert found.size_bytes == 512 + size + 1024


def test_archive_when_names_are_long_then_is_whole(tmp_path: Path) -> None:
    files = [("f" * 160 + "/" + "n" * 120, b"first"), ("short/name", b"second")]
    found = Archive("name", files)
    sent = b"".join(found.chunks())
    assert len(sent) == found.size_bytes
    with tarfile.open(fileobj=io.BytesIO(sent)) as tar:
        assert tar.getnames() == [name for name, _ in files]


def test_file_when_it_shrinks_while_it_is_sent_then_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123")
    with (tmp_path / "x").open("rb") as file, pytest.raises(OSError, match="shrank"):
        list(exactly(file, 4))


def test_state_when_it_is_a_link_then_is_not_given_away(tmp_path: Path) -> None:
    run_dir = tmp_path / "demo-1"
    folder = checkpoint(run_dir)
    (folder / "p.safetensors").symlink_to(outside(tmp_path) / "p.safetensors")
    for kind in ("state", "peft"):
        with pytest.raises(NotFoundError):
            archive(run_dir, SPEC, "step-00001", "p", kind)


def test_state_when_ranks_wrote_it_in_parts_then_all_are_sent_or_none(tmp_path: Path) -> None:
    run_dir = tmp_path / "demo-1"
    folder = checkpoint(run_dir)
    (folder / "state.json").write_text('{"step": 1, "parts": {"p": 2}}')
    for number, text in enumerate((b"first", b"second")):
        (folder / f"p.{number:05d}-of-00002.safetensors").write_bytes(text)
    [listed] = checkpoint_list(run_dir, SPEC).checkpoints
    assert listed.size_bytes == 11
    sent = b"".join(archive(run_dir, SPEC, "step-00001", "p", "state").chunks())
    assert sent.index(b"first") < sent.index(b"second")
    (folder / "p.00001-of-00002.safetensors").unlink()
    with pytest.raises(NotFoundError):
        archive(run_dir, SPEC, "step-00001", "p", "state")


@pytest.mark.parametrize("linked", ["policies", "policies/p", "policies/p/adapter"])
def test_policy_when_a_folder_is_a_link_then_is_not_given_away(tmp_path: Path, linked: str) -> None:
    run_dir, elsewhere = tmp_path / "demo-1", outside(tmp_path)
    (elsewhere / "p").symlink_to(elsewhere)
    target = {"policies": elsewhere, "policies/p": elsewhere}.get(linked, elsewhere / "adapter")
    (run_dir / linked).parent.mkdir(parents=True)
    (run_dir / linked).symlink_to(target)
    assert checkpoint_list(run_dir, SPEC).checkpoints == []
    with pytest.raises(NotFoundError):
        archive(run_dir, SPEC, "final", "p", "peft")


@pytest.mark.parametrize("linked", ["logs", "logs/x.log"])
def test_log_when_it_is_a_link_then_is_not_shown(tmp_path: Path, linked: str) -> None:
    run_dir, elsewhere = tmp_path / "demo-1", outside(tmp_path)
    (run_dir / linked).parent.mkdir(parents=True)
    (run_dir / linked).symlink_to(elsewhere if linked == "logs" else elsewhere / "x.log")
    assert log_list(run_dir).components == []
    with pytest.raises(NotFoundError):
        log_tail(run_dir, "x", 1)
    with pytest.raises(NotFoundError):
        log_after(run_dir, "x", 0, 1)
