"""Checkpoints on disk: atomic, of one spec, and never pickle.

A checkpoint is a folder that appears under its name when it is complete. Tensors are safetensors,
the rest is JSON. Owns the folder ``checkpoints`` and the file ``groups.jsonl`` that goes with it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from services.trainer.learner import LearnerState
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe.telemetry.logging import get_logger

_log = get_logger(__name__)

FORMAT = 1
STATE = "state.json"


class CheckpointMismatchError(InvalidArgumentError):
    """The checkpoint belongs to another spec."""

    reason: ClassVar[str] = "CHECKPOINT_MISMATCH"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything after ``step`` training steps.

    ``reports`` are the events of the steps since the checkpoint before, so that none is lost
    between learning a step and telling of it.
    """

    step: int
    learners: Mapping[str, LearnerState]
    reports: Sequence[Mapping[str, Any]]


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run_dir: Path, spec: JobSpec) -> None:
        self._folder = run_dir / "checkpoints"
        self._groups = run_dir / "groups.jsonl"
        self._keep_last = spec.checkpoint.keep_last
        self._fingerprint = spec_fingerprint(spec)
        self._unwritten: list[str] = []

    def note_trained(self, step: int, groups: Mapping[str, Sequence[str]]) -> None:
        """Remember the trained group ids of a step, to be written with the next checkpoint."""
        self._unwritten += [
            json.dumps({"step": step, "policy": policy, "group_ids": list(ids)})
            for policy, ids in groups.items()
        ]

    def save(self, snapshot: Snapshot) -> Path:
        """Write a checkpoint; it is there wholly or not at all."""
        self._append_groups()
        target = self._folder / f"step-{snapshot.step:05d}"
        staging = self._folder / f".staging-{target.name}"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        for policy, state in snapshot.learners.items():
            save_file(state.tensors, staging / f"{policy}.safetensors")
        body = {
            "format": FORMAT,
            "step": snapshot.step,
            "spec": self._fingerprint,
            "versions": dict.fromkeys(snapshot.learners, snapshot.step),
            "optimizer_steps": {p: s.optimizer_step for p, s in snapshot.learners.items()},
            "reports": list(snapshot.reports),
        }
        (staging / STATE).write_text(json.dumps(body))
        for file in staging.iterdir():
            _sync(file)
        _sync(staging)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
        _sync(self._folder)
        self._remove_old()
        return target

    def load(self) -> Snapshot | None:
        """The newest complete checkpoint, or None; ``groups.jsonl`` is cut back to it.

        Raises:
            CheckpointMismatchError: it was made under another model, seed, algorithm or policy.
        """
        for folder in self._newest_first():
            try:
                snapshot = self._read(folder)
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                _log.warning("checkpoint.unreadable", path=str(folder), error=str(error))
                continue
            self._cut_groups(snapshot.step)
            return snapshot
        self._cut_groups(0)
        return None

    def _read(self, folder: Path) -> Snapshot:
        body = json.loads((folder / STATE).read_text())
        if body["format"] != FORMAT or body["spec"] != self._fingerprint:
            raise CheckpointMismatchError(
                f"The checkpoint {folder} was made under another spec (seed, models, policies, "
                "algorithm, sampling or batch size differ). Resume with the spec in spec.json of "
                "its run folder, or start in an empty run folder."
            )
        learners = {
            policy: LearnerState(load_file(folder / f"{policy}.safetensors"), int(count))
            for policy, count in body["optimizer_steps"].items()
        }
        return Snapshot(int(body["step"]), learners, body["reports"])

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"), reverse=True)

    def _remove_old(self) -> None:
        for folder in self._newest_first()[self._keep_last :]:
            shutil.rmtree(folder, ignore_errors=True)

    def _append_groups(self) -> None:
        with self._groups.open("a") as file:
            file.writelines(f"{line}\n" for line in self._unwritten)
            file.flush()
            os.fsync(file.fileno())
        self._unwritten.clear()

    def _cut_groups(self, step: int) -> None:
        """Keep the lines of steps below ``step``; a torn line was never covered."""
        if not self._groups.exists():
            return
        kept: list[str] = []
        for line in self._groups.read_text().splitlines():
            try:
                covered = json.loads(line)["step"] < step
            except (ValueError, KeyError):
                continue
            if covered:
                kept.append(f"{line}\n")
        draft = self._groups.with_suffix(".draft")
        draft.write_text("".join(kept))
        _sync(draft)
        draft.replace(self._groups)


def spec_fingerprint(spec: JobSpec) -> str:
    """Hex digest of what a checkpoint depends on: seed, policies, algorithm and who plays."""
    relevant = spec.model_dump(
        mode="json",
        include={"seed", "policies", "algorithm", "agents", "sampling", "task", "workflow"},
    )
    relevant |= {"tasks_per_step": spec.tasks_per_step, "reward": spec.reward.model_dump()}
    for policy in relevant["policies"].values():
        del policy["replicas"]
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
