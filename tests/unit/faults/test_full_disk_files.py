"""What a full disk leaves of the files of a run: the last good state, and nothing torn."""

import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from trainer_data import job_spec

from troupe.durable import append, cut, replace_file
from troupe.errors import UnavailableError
from troupe_router.run.record_file import RecordFile
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.model.learner_state import LearnerState

STATE = {"shared": LearnerState({"param/w": torch.tensor([1.0, 2.0])}, 3)}


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """What is written beyond it fails with EFBIG, after a part was written: as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setattr("troupe.runtime.faults._folder", lambda: folder)
    return folder


def test_append_when_the_disk_fills_amid_it_then_the_record_is_as_before(tmp_path: Path):
    record = RecordFile(tmp_path / "metrics.jsonl")
    record.append("train-00000", [b'{"kind": "train", "step": 0}\n'])
    before = record.path.read_bytes()
    with files_of_at_most(len(before) + 5), pytest.raises(OSError) as raised:
        record.append("train-00001", [b'{"kind": "train", "step": 1}\n'])
    assert raised.value.errno == errno.EFBIG
    assert record.path.read_bytes() == before
    record.append("train-00001", [b'{"kind": "train", "step": 1}\n'])
    assert [line["step"] for _, line in record.lines()] == [0, 1]
    assert not any(part.loss for part in record.parts.values())


def test_save_when_the_disk_is_full_then_nothing_is_left_and_the_next_one_holds_all(
    tmp_path: Path, faults: Path
):
    checkpoints = Checkpoints(tmp_path, job_spec(tmp_path / "model"))
    checkpoints.save(CheckpointContents(1, STATE, (), [(0, {"shared": {"g0": [0.5]}})]))
    before = (tmp_path / "groups.jsonl").read_bytes()
    (faults / "trainer.checkpoint_staged@2").write_text("enospc")
    second = CheckpointContents(2, STATE, (), [(1, {"shared": {"g1": [0.5]}})])
    with pytest.raises(UnavailableError, match=r"step 2 can't be written to .*checkpoints"):
        checkpoints.save(second)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00001"]
    assert (tmp_path / "groups.jsonl").read_bytes() == before
    (faults / "trainer.checkpoint_staged@2").unlink()
    checkpoints.save(second)
    found = checkpoints.load()
    assert found is not None
    assert found.step == 2
    lines = (tmp_path / "groups.jsonl").read_text().splitlines()
    assert [json.loads(line)["group_ids"] for line in lines] == [["g0"], ["g1"]]


def test_append_when_the_first_try_was_refused_then_the_next_one_syncs_the_files_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, synced = tmp_path / "record.jsonl", list[Path]()
    real = os.fsync

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            append(path, 0, b"line\n")
    assert path.read_bytes() == b""
    monkeypatch.setattr(os, "fsync", fsync)
    append(path, 0, b"line\n")
    assert synced == [path, tmp_path]


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
@pytest.mark.timeout(20)
def test_write_when_a_link_or_a_pipe_is_in_the_files_place_then_nothing_is_written_through_it(
    tmp_path: Path, kind: str
):
    path, victim = tmp_path / "record.jsonl", tmp_path / "victim"
    victim.write_bytes(b"precious")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(OSError, match=r"symbolic links|No such device|seek"):
        append(path, 8, b"more")
    with pytest.raises(OSError, match=r"symbolic links|No such device|seek"):
        cut(path, 3)
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()
    replace_file(path, "new")
    assert (path.read_text(), path.is_symlink(), victim.read_bytes()) == ("new", False, b"precious")
