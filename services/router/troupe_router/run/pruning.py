"""Removes the run folders that retention chooses, each with its job.

Owns looking, asking and removing. A folder without a valid ``job.json`` of its own name is not
Troupe's: it is neither counted nor touched.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from troupe.clients.rest.models.jobs import JobState
from troupe.errors import TroupeError
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.discard import remove_discarded
from troupe_router.jobs.job_file import JOB_FILE, JobHead
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import FINISHED
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.run.folders import run_folders
from troupe_router.run.retention import Excess, KeptRun, RetentionLimits, excess

_log = get_logger(__name__)


@dataclass(slots=True)
class Pruned:
    """What a pruning removed, or would remove. ``used_bytes``: of all run folders before it."""

    used_bytes: int
    removed: list[Excess] = field(default_factory=list[Excess])
    kept: dict[str, str] = field(default_factory=dict[str, str])
    """Protected folders that exceed a limit of age, with the reason."""

    @property
    def freed_bytes(self) -> int:
        """Bytes of the removed folders."""
        return sum(chosen.run.size_bytes for chosen in self.removed)


class RunPruning:
    """Prunes one runs folder."""

    def __init__(self, store: JobStore, commands: JobCommands, runs_dir: Path) -> None:
        self._store = store
        self._commands = commands
        self._runs_dir = runs_dir.absolute()
        self._sizes: dict[str, tuple[float, int]] = {}
        """By folder: when its job came to rest, and its size since."""

    async def run(self, limits: RetentionLimits, *, is_dry: bool = False) -> Pruned:
        """Remove what exceeds ``limits``; ``is_dry`` only says what that would be."""
        if not is_dry:
            await asyncio.to_thread(remove_discarded, self._runs_dir)
        states = await self._store.states()
        open_ids = [job_id for job_id, state in states.items() if state not in FINISHED]
        records = await self._store.read(open_ids)
        runs = await asyncio.to_thread(self._look, states, records)
        now = time.time()
        pruned = Pruned(sum(run.size_bytes for run in runs))
        for run in runs:
            why = run.protection(limits, now)
            if why and limits.max_age_s and now - run.rested_at > limits.max_age_s:
                pruned.kept[run.name] = why
        for chosen in excess(runs, limits, now):
            if is_dry or await self._remove(chosen, is_known=chosen.run.name in states):
                pruned.removed.append(chosen)
        if not is_dry:
            metrics.ROUTER_RUN_BYTES.set(pruned.used_bytes - pruned.freed_bytes)
            metrics.ROUTER_FREED_BYTES.inc(pruned.freed_bytes)
        return pruned

    async def _remove(self, chosen: Excess, *, is_known: bool) -> bool:
        """Remove a folder and its job; False when its job has begun to run, or the disk fails."""
        name = chosen.run.name
        try:
            if is_known:
                await self._commands.delete(name, files=True)
            else:
                await self._commands.discard(name)
        except (TroupeError, OSError) as error:
            _log.warning("run_folder.not_removed", job_id=name, error=str(error))
            return False
        _log.info("run_folder.removed", job_id=name, why=chosen.why, bytes=chosen.run.size_bytes)
        return True

    def _look(
        self, states: Mapping[str, JobState], unfinished: Sequence[JobRecord]
    ) -> list[KeptRun]:
        specs = "".join(job.spec.model_dump_json() for job in unfinished)
        runs = [
            self._run(folder.path, folder.head, states.get(folder.path.name), specs)
            for folder in run_folders(self._runs_dir)
            if folder.head is not None and folder.is_recorded
        ]
        self._sizes = {run.name: self._sizes[run.name] for run in runs if run.name in self._sizes}
        return runs

    def _run(self, path: Path, head: JobHead, known_state: JobState | None, specs: str) -> KeptRun:
        state = known_state or head.state
        rested_at = head.ended_at if state in FINISHED else (path / JOB_FILE).lstat().st_mtime
        measured_at, size = self._sizes.get(path.name, (0.0, 0))
        if measured_at != rested_at:
            size = size_of(path)
            self._sizes[path.name] = rested_at, size
        place = f"{path.parent.name}/{path.name}"
        return KeptRun(
            path.name,
            state,
            rested_at,
            size,
            is_pinned=head.is_pinned,
            is_read=f"{place}/" in specs or f'{place}"' in specs,
        )


def size_of(folder: Path) -> int:
    """Bytes on disk of everything in ``folder``; links are not followed."""
    size = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                size += (Path(parent) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return size
