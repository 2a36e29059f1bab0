"""Checkpoints on disk: atomic, bound to one spec, never pickle.

A checkpoint is a folder that appears under its name when it is complete. Tensors are safetensors,
the rest is JSON. A superseded trainer may still try to write: it calls ``admit`` right before a
checkpoint appears, stages in a folder that carries its epoch, and never replaces a successor's
checkpoint. Owns the folder ``checkpoints`` and the file ``groups.jsonl`` beside it, or those of one
policy that has its own trainer. Call it from any thread but the event loop's, one call at a time.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from troupe.durable import append, make_folder, put, replace_file, sync_tree
from troupe.errors import (
    FencedError,
    JobFailedError,
    TroupeError,
    UnavailableError,
    WeightsRejectedError,
)
from troupe.runtime.faults import reached
from troupe.runtime.run_folder import (
    checkpoints_folder,
    groups_file,
    newest_first,
    part_names,
    step_name,
    step_of,
)
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.deadlines import checkpoint_s
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.compatibility import check_spec, spec_parts
from troupe_trainer.model.learner_state import LearnerState
from troupe_trainer.model.stored import StoredTensors, await_part

_log = get_logger(__name__)

FORMAT = 2
FORMAT_IN_PARTS = 3
"""Of a checkpoint with a policy whose state several ranks wrote."""
STATE = "state.json"
_STAGING = ".staging-"

Trained = Mapping[str, Mapping[str, Sequence[float]]]
"""By policy and group id: what the candidates' advantages were; none where nothing was learnt."""


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """Everything after ``step`` training steps.

    ``reports`` are the events of the steps since the checkpoint before, so that none is lost
    between learning a step and reporting it; ``trained`` are those steps' groups by policy, each
    with its candidates' advantages. ``baselines`` is what the algorithm remembers from step to
    step.
    """

    step: int
    learners: Mapping[str, LearnerState]
    reports: Sequence[Mapping[str, Any]] = ()
    trained: Sequence[tuple[int, Trained]] = ()
    baselines: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _anybody() -> None:
    """Admit a process that has no epoch."""


class Checkpoints:
    """The checkpoints of one run folder.

    ``admit`` raises FencedError when another trainer has taken over from the one with ``epoch``.
    ``policy`` is set when a trainer learns that policy alone: a restarted job can only continue
    from a step that every policy has, so the newest such checkpoint is kept, and all after it.
    """

    def __init__(
        self,
        run_dir: Path,
        spec: JobSpec,
        *,
        epoch: int = 0,
        admit: Callable[[], None] = _anybody,
        policy: str = "",
    ) -> None:
        self._epoch = epoch
        self._admit = admit
        self._run_dir = run_dir
        self._policy = policy
        self._folder = checkpoints_folder(run_dir, policy)
        self._groups = groups_file(run_dir, policy)
        self._keep_last = spec.checkpoint.keep_last
        self._keep_best = spec.checkpoint.keep_best
        self._spec = spec
        self._attempt = 0

    def begin(self, step: int) -> Path:
        """The empty folder that parts of the checkpoint of ``step`` are written to before ``save``.

        Raises:
            UnavailableError: the disk is full or failing.
        """
        self._attempt += 1  # a rank may still write a part of a refused one
        staging = self._staging(step)
        try:
            make_folder(staging)
        except OSError as error:
            raise UnavailableError(_refusal(step, self._folder, error)) from error
        return staging

    def _staging(self, step: int) -> Path:
        name = f"{_STAGING}{self._epoch}-{self._attempt}-{step_name(step)}"
        return self._folder / name

    def save(self, snapshot: CheckpointContents) -> Path:
        """Write a checkpoint, completely or not at all.

        Raises:
            UnavailableError: the disk is full or failing; nothing of the checkpoint is left.
            JobFailedError: JSON does not hold the baselines; nothing of it is left.
            FencedError: another trainer has taken over.
        """
        target = self._folder / step_name(snapshot.step)
        staging = self._staging(snapshot.step)
        listed: int | None = None
        try:
            rewards = self._stage(snapshot, staging)
            self._admit_over(target)
            listed = self._groups.stat().st_size if self._groups.exists() else 0
            append(self._groups, listed, _group_lines(snapshot))
            put(staging, target)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(staging, ignore_errors=True)
            with suppress(OSError):
                if listed is not None:
                    os.truncate(self._groups, listed)
            raise UnavailableError(_refusal(snapshot.step, self._folder, error)) from error
        except TroupeError:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        reached("trainer.checkpoint_there", snapshot.step)
        self._remove_old(snapshot.step, rewards)
        return target

    def _admit_over(self, target: Path) -> None:
        """Raise FencedError when another trainer has taken over or a later one wrote ``target``."""
        self._admit()
        try:
            epoch = int(json.loads((target / STATE).read_text())["epoch"])
        except (FileNotFoundError, ValueError, KeyError):
            return  # none, or a torn one
        if epoch > self._epoch:
            raise FencedError(
                f"{target} was written by a trainer with epoch {epoch}, which has taken over from "
                f"this one with epoch {self._epoch}. This trainer stops; its checkpoint is dropped."
            )

    def _stage(self, snapshot: CheckpointContents, staging: Path) -> dict[str, float]:
        """Write every file of the checkpoint safely to disk; returns the known rewards."""
        make_folder(staging)
        for name, state in snapshot.learners.items():
            own, *_ = part_names(name, state.num_parts)
            save_file(dict(state.tensors), staging / own)
        self._await_parts(snapshot, staging)
        rewards = self._rewards(snapshot)
        (staging / STATE).write_text(json.dumps(self._body(snapshot, rewards)))
        reached("trainer.checkpoint_staged", snapshot.step)
        sync_tree(staging)
        return rewards

    def _await_parts(self, snapshot: CheckpointContents, staging: Path) -> None:
        """Wait until every rank has written its parts; raises OSError where one does not."""
        deadline = time.monotonic() + checkpoint_s(self._spec)
        for name, state in snapshot.learners.items():
            for part in part_names(name, state.num_parts)[1:]:
                await_part(staging / part, deadline=deadline)

    def load(self, *, with_all: bool = False) -> CheckpointContents | None:
        """The newest complete checkpoint, or None; ``groups.jsonl`` is cut back to it.

        ``with_all``: the newest whose step every policy has; newer checkpoints are removed.

        Raises:
            CheckpointMismatchError: it was made under another model, seed, algorithm or policy.
            JobFailedError: the checkpoint of the step that every policy has is broken, or all are.
            UnavailableError: the disk is failing; nothing was changed.
        """
        try:
            with suppress(FileNotFoundError):
                list(self._folder.iterdir())  # glob passes over one that may not be listed
            return self._load(with_all=with_all)
        except OSError as error:
            raise UnavailableError(
                f"The checkpoints in {self._folder} can't be read ({error}). Nothing was changed; "
                "see that the disk answers and that the folder and its files belong to the "
                "trainer's user, and resume the job."
            ) from error

    def _load(self, *, with_all: bool) -> CheckpointContents | None:
        for staging in self._folder.glob(f"{_STAGING}*"):
            shutil.rmtree(staging, ignore_errors=True)
        if with_all:
            self._go_back_to(newest_common(self._run_dir, self._spec))
        folders = newest_first(self._folder)
        for folder in folders:
            try:
                snapshot = self.read(folder)
            except (FileNotFoundError, ValueError, KeyError, WeightsRejectedError) as error:
                if with_all:
                    raise JobFailedError(
                        f"The checkpoint {folder} can't be read ({error}), and the other policies "
                        f"go on from its step. Remove {folder.name} of every policy in "
                        f"{self._folder.parent} to go on from the step before, and resume the job."
                    ) from error
                _log.warning("checkpoint.unreadable", path=str(folder), error=str(error))
                continue
            self._cut_groups(snapshot.step)
            return snapshot
        if folders:
            raise JobFailedError(
                f"No checkpoint in {self._folder} is whole ({', '.join(f.name for f in folders)}). "
                "Put one back, or remove them all to begin at step 0, and resume the job."
            )
        self._cut_groups(0)
        return None

    def _go_back_to(self, step: int) -> None:
        """Remove what the previous life learnt beyond ``step``; this one learns it again."""
        for folder in newest_first(self._folder):
            if step_of(folder) > step:
                self._admit()
                _log.info("checkpoint.beyond_the_others", path=str(folder), common=step)
                shutil.rmtree(folder)

    def read(self, folder: Path) -> CheckpointContents:
        """Read one checkpoint; raises CheckpointMismatchError, or a broken file's own error.

        The numbers are read when a learner restores them.
        """
        body = json.loads((folder / STATE).read_text())
        check_spec(folder, body, self._spec, formats=(FORMAT, FORMAT_IN_PARTS))
        bases, parts = body.get("bases", {}), body.get("parts", {})  # absent in older checkpoints
        learners: dict[str, LearnerState] = {}
        for name, count in body["optimizer_steps"].items():
            files = [folder / part for part in part_names(name, parts.get(name, 1))]
            learners[name] = LearnerState(StoredTensors(files), int(count), bases.get(name, ""))
        return CheckpointContents(
            int(body["step"]), learners, body["reports"], baselines=body["baselines"]
        )

    def _body(self, snapshot: CheckpointContents, rewards: Mapping[str, float]) -> dict[str, Any]:
        """The checkpoint's JSON. The data cursor is the step: a step's tasks follow from it."""
        parts = {n: s.num_parts for n, s in snapshot.learners.items() if s.num_parts > 1}
        return {
            "format": FORMAT_IN_PARTS if parts else FORMAT,
            "step": snapshot.step,
            "epoch": self._epoch,
            "spec": spec_parts(self._spec),
            "versions": dict.fromkeys(self._learnt(), snapshot.step),
            "tasks_seen": snapshot.step * self._spec.tasks_per_step,
            "optimizer_steps": {n: s.optimizer_step for n, s in snapshot.learners.items()},
            "bases": {n: s.base for n, s in snapshot.learners.items()},
            **({"parts": parts} if parts else {}),
            "baselines": _storable(snapshot.baselines),
            "reports": list(snapshot.reports),
            "rewards": dict(rewards),
        }

    def _learnt(self) -> Sequence[str]:
        return [self._policy] if self._policy else list(self._spec.policies)

    def _rewards(self, snapshot: CheckpointContents) -> dict[str, float]:
        """Mean training reward of each kept checkpoint's weights, by folder name.

        The step after a checkpoint is played with its weights, so its reward comes one step later.
        """
        folders = newest_first(self._folder)
        known = _noted_rewards(folders)
        for report in snapshot.reports:
            if report.get("trained_reward_mean") is not None:
                known[step_name(int(report["step"]))] = float(report["trained_reward_mean"])
        names = {folder.name for folder in folders}
        return {name: reward for name, reward in known.items() if name in names}

    def _remove_old(self, step: int, rewards: Mapping[str, float]) -> None:
        """Remove what is not kept, and all beyond ``step``: this trainer went on from before."""
        there = newest_first(self._folder)
        folders = [folder for folder in there if step_of(folder) <= step]
        best = sorted(rewards, key=lambda name: (rewards[name], name))[-self._keep_best :]
        kept = {folder.name for folder in folders[: self._keep_last]}
        kept |= set(best) if self._keep_best else set()
        if self._policy:
            common = newest_common(self._run_dir, self._spec)
            kept |= {folder.name for folder in folders if step_of(folder) >= common}
        for folder in there:
            is_beyond = step_of(folder) > step
            if is_beyond:
                self._admit_over(folder)
            if is_beyond or folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _cut_groups(self, step: int) -> None:
        """Keep the lines of steps below ``step``; a torn line was never covered."""
        if not self._groups.exists():
            return
        lines: list[str] = []
        for line in self._groups.read_text().splitlines():
            try:
                covered = json.loads(line)["step"] < step
            except (ValueError, KeyError):
                continue
            if covered:
                lines.append(f"{line}\n")
        replace_file(self._groups, "".join(lines))


def _storable(baselines: Mapping[str, Any]) -> dict[str, Any]:
    """``baselines``; raises JobFailedError where JSON does not hold them: no restart would help."""
    try:
        json.dumps(dict(baselines))
        problem = next(_other_keys(baselines), "")
    except (TypeError, ValueError) as error:
        problem = str(error)
    if problem:
        raise JobFailedError(
            f"What the algorithm's `baselines` returns can't be kept in a checkpoint: {problem}. "
            "Let it return numbers, texts, lists and maps with texts as keys."
        )
    return dict(baselines)


def _other_keys(value: Any) -> Iterator[str]:
    """Keys that JSON would give back as texts."""
    if isinstance(value, Mapping):
        yield from (f"the key {key!r} is no text" for key in value if not isinstance(key, str))
        value = value.values()
    for inner in value:
        if isinstance(inner, dict | list | tuple):
            yield from _other_keys(inner)


def steps_of_all(run_dir: Path, spec: JobSpec) -> list[int]:
    """The steps that every trainer has a checkpoint of, newest first."""
    steps = [
        {step_of(folder) for folder in newest_first(checkpoints_folder(run_dir, policy))}
        for policy in spec.trainers()
    ]
    return sorted(set.intersection(*steps), reverse=True)


def newest_common(run_dir: Path, spec: JobSpec) -> int:
    """The newest step that every trainer has a checkpoint of; 0, the beginning, without one."""
    return next(iter(steps_of_all(run_dir, spec)), 0)


def best_first(folder: Path) -> list[Path]:
    """The checkpoints whose reward is known, best first; the newer of equals first."""
    rewards = _noted_rewards(newest_first(folder))
    names = sorted(rewards, key=lambda name: (rewards[name], name), reverse=True)
    return [folder / name for name in names if (folder / name).is_dir()]


def _noted_rewards(folders: Sequence[Path]) -> dict[str, float]:
    """Folder name -> mean reward, as the first of ``folders`` that is not torn has them."""
    for folder in folders:
        with suppress(FileNotFoundError, ValueError, KeyError):
            return dict(json.loads((folder / STATE).read_text())["rewards"])
    return {}


def _refusal(step: int, folder: Path, error: Exception) -> str:
    return (
        f"The checkpoint of step {step} can't be written to {folder} ({error}); it is tried again. "
        "Free space there."
    )


def _group_lines(snapshot: CheckpointContents) -> bytes:
    """The lines of groups.jsonl for the steps that the checkpoint is the first to cover."""
    lines: list[str] = []
    for step, groups in snapshot.trained:
        for policy, advantages in groups.items():
            values = [[float(f"{a:.6g}") for a in row] for row in advantages.values()]
            line = {"step": step, "policy": policy, "group_ids": list(advantages)}
            lines.append(f"{json.dumps({**line, 'advantages': values})}\n")
    return "".join(lines).encode()
