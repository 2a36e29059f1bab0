"""What a trainer makes of checkpoints that it can't read: torn ones, and a disk that fails."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec

from troupe.errors import FencedError, JobFailedError, UnavailableError
from troupe_trainer.checkpoint import files
from troupe_trainer.checkpoint.files import CheckpointContents, Checkpoints
from troupe_trainer.model.learner_state import LearnerState


def _contents(step: int, number: float = 1.0) -> CheckpointContents:
    states = {"shared": LearnerState({"param/w": torch.full((2,), number)}, step)}
    return CheckpointContents(step, states, trained=[(step - 1, {"shared": {f"g{step}": [0.5]}})])


def _run(run_dir: Path, steps: int, **checkpoint: int) -> Checkpoints:
    """The checkpoints of a run folder after ``steps`` steps, as a new trainer finds them."""
    spec = job_spec(run_dir / "model", steps=9, checkpoint=checkpoint)
    checkpoints = Checkpoints(run_dir, spec)
    for step in range(1, steps + 1):
        checkpoints.save(_contents(step))
    return Checkpoints(run_dir, spec)


def _names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def _steps(run_dir: Path) -> list[int]:
    return [
        json.loads(line)["step"] for line in (run_dir / "groups.jsonl").read_text().splitlines()
    ]


def _tear(run_dir: Path, *steps: int) -> None:
    for step in steps:
        os.truncate(run_dir / "checkpoints" / f"step-{step:05d}" / "shared.safetensors", 10)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EMFILE, errno.EACCES])
def test_load_when_the_disk_fails_then_says_so_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    checkpoints = _run(tmp_path, 4)

    def fails(paths: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(files, "StoredTensors", fails)
        with pytest.raises(UnavailableError, match=os.strerror(number)):
            checkpoints.load()
    assert _steps(tmp_path) == [0, 1, 2, 3]
    found = checkpoints.load()
    assert found is not None
    assert found.step == 4


def test_load_when_the_folder_may_not_be_listed_then_says_so_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = _run(tmp_path, 2)

    def refuses(folder: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuses)
    with pytest.raises(UnavailableError, match="Permission denied"):
        checkpoints.load()
    assert _steps(tmp_path) == [0, 1]


def test_load_when_every_checkpoint_is_torn_then_fails_and_names_them(tmp_path: Path) -> None:
    checkpoints = _run(tmp_path, 4)
    _tear(tmp_path, 3, 4)
    with pytest.raises(JobFailedError, match=r"step-00004, step-00003"):
        checkpoints.load()
    assert _steps(tmp_path) == [0, 1, 2, 3]


def test_save_when_a_torn_one_is_beyond_it_then_it_is_what_a_restart_finds(tmp_path: Path) -> None:
    checkpoints = _run(tmp_path, 4, keep_last=3)
    _tear(tmp_path, 3, 4)
    found = checkpoints.load()
    assert found is not None
    assert found.step == 2
    again = _run(tmp_path, 0, keep_last=1)
    path = again.save(_contents(3, 7.0))
    assert path.exists()
    assert _names(tmp_path) == ["step-00003"]
    found = again.load()
    assert found is not None
    assert found.learners["shared"].tensors["param/w"].tolist() == [7.0, 7.0]
    assert _steps(tmp_path) == [0, 1, 2]


def test_save_when_a_later_trainer_went_on_meanwhile_then_its_checkpoints_stay(
    tmp_path: Path,
) -> None:
    spec = job_spec(tmp_path / "model", steps=9, checkpoint={"keep_last": 3})
    old = Checkpoints(tmp_path, spec, epoch=1)
    old.save(_contents(1))
    Checkpoints(tmp_path, spec, epoch=2).save(_contents(3))
    with pytest.raises(FencedError, match="epoch 2"):
        old.save(_contents(2))
    assert "step-00003" in _names(tmp_path)


def test_save_when_the_best_is_beyond_it_then_it_goes_too(tmp_path: Path) -> None:
    spec = job_spec(tmp_path / "model", steps=9, checkpoint={"keep_last": 2, "keep_best": 1})
    checkpoints = Checkpoints(tmp_path, spec)
    checkpoints.save(_contents(1))
    checkpoints.save(_contents(3))
    best = [{"step": 3, "trained_reward_mean": 0.9}]
    checkpoints.save(replace(_contents(2), reports=best))
    assert _names(tmp_path) == ["step-00001", "step-00002"]


def test_best_when_the_newest_state_is_torn_then_is_still_known(tmp_path: Path) -> None:
    spec = job_spec(tmp_path / "model", steps=9, checkpoint={"keep_last": 2, "keep_best": 1})
    checkpoints = Checkpoints(tmp_path, spec)
    for step in range(1, 6):
        reports = [{"step": step - 1, "trained_reward_mean": 0.9 if step == 3 else 0.1}]
        checkpoints.save(replace(_contents(step), reports=reports))
    assert _names(tmp_path) == ["step-00002", "step-00004", "step-00005"]
    (tmp_path / "checkpoints/step-00005/state.json").write_text("")
    assert files.best_first(tmp_path / "checkpoints")[0].name == "step-00002"
    checkpoints.save(_contents(5))
    assert "step-00002" in _names(tmp_path)


@pytest.mark.parametrize(
    ("remembered", "problem"),
    [
        ({"mean": torch.tensor(0.5)}, "Tensor is not JSON serializable"),
        ({"by_turn": [{1: 0.5}]}, "the key 1 is no text"),
    ],
)
def test_save_when_an_algorithm_remembers_what_json_does_not_hold_then_the_job_fails(
    tmp_path: Path, remembered: dict[str, Any], problem: str
) -> None:
    checkpoints = _run(tmp_path, 1)
    with pytest.raises(JobFailedError, match=rf"`baselines` .*{problem}"):
        checkpoints.save(replace(_contents(2), baselines=remembered))
    assert _names(tmp_path) == ["step-00001"]
