"""Removes the run folders that retention chooses, each with its job.

Owns looking, asking and removing. A folder without a valid ``job.json`` of its own name is not
Troupe's: it is neither counted nor touched.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troupe.clients.rest.models.jobs import JobState
from troupe.errors import TroupeError
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.discard import remove_discarded
from troupe_router.jobs.job_file import JOB_FILE
from troupe_router.jobs.state import FINISHED
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.run.folders import run_folders
from troupe_router.run.retention import Excess, KeptRun, RetentionLimits, excess

_log = get_logger(__name__)
_READ_S = 1.0
"""Specs of unfinished jobs are read again while a pruning takes longer than this."""


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
        self._read: set[str] = set()
        self._read_at = 0.0

    async def run(self, limits: RetentionLimits, *, is_dry: bool = False) -> Pruned:
        """Remove what exceeds ``limits``; ``is_dry`` only says what that would be."""
        if not is_dry:
            await asyncio.to_thread(remove_discarded, self._runs_dir)
        states = await self._store.states()
        pinned = await self._store.pinned(states)
        await self._find_read(states)
        ended = await self._store.ended_at(states)
        runs = await asyncio.to_thread(self._look, states, pinned, ended)
        now = time.time()
        pruned = Pruned(sum(run.size_bytes for run in runs))
        for run in runs:
            why = run.protection(limits, now)
            if why and limits.max_age_s and now - run.rested_at > limits.max_age_s:
                pruned.kept[run.name] = why
        for chosen in excess(runs, limits, now):
            if is_dry or await self._remove(chosen):
                pruned.removed.append(chosen)
        if not is_dry:
            metrics.ROUTER_RUN_BYTES.set(pruned.used_bytes - pruned.freed_bytes)
            metrics.ROUTER_FREED_BYTES.inc(pruned.freed_bytes)
        return pruned

    async def _remove(self, chosen: Excess) -> bool:
        """Remove a folder and its job; False where that may not be any more, or the disk fails.

        A long pruning outlives its first look: a job may be resumed, pinned or read meanwhile.
        """
        name = chosen.run.name
        if time.monotonic() - self._read_at > _READ_S:
            await self._find_read(await self._store.states())
        if name in self._read or name in await self._store.pinned([name]):
            return False
        try:
            if await self._store.state(name):
                await self._commands.delete(name, files=True)
            else:
                await self._commands.discard(name)
        except (TroupeError, OSError) as error:
            _log.warning("run_folder.not_removed", job_id=name, error=str(error))
            return False
        _log.info("run_folder.removed", job_id=name, why=chosen.why, bytes=chosen.run.size_bytes)
        return True

    async def _find_read(self, states: Mapping[str, JobState]) -> None:
        """Find the run folders that the specs of unfinished jobs name."""
        self._read_at = time.monotonic()
        open_ids = [job_id for job_id, state in states.items() if state not in FINISHED]
        specs = set(await self._store.spec_texts(open_ids))
        self._read = await asyncio.to_thread(named_folders, self._runs_dir, specs)

    def _look(
        self,
        states: Mapping[str, JobState],
        pinned: AbstractSet[str],
        ended: Mapping[str, float],
    ) -> list[KeptRun]:
        """``pinned``: names. A job that Redis does not know is as its file says."""
        runs: list[KeptRun] = []
        for folder in run_folders(self._runs_dir):
            if folder.head is None or not folder.is_recorded:
                continue
            name, head = folder.path.name, folder.head
            is_listed = name in states
            if is_listed and name not in ended:
                continue  # removed since the list was made
            # The file of a job that is listed may lag behind what Redis says.
            state = states.get(name, head.state)
            is_pinned = name in pinned or (not is_listed and head.is_pinned)
            ended_at = ended[name] if is_listed else head.ended_at
            rested_at = ended_at if state in FINISHED else _written_at(folder.path)
            size = self._size(folder.path, rested_at)
            runs.append(KeptRun(name, state, rested_at, size, is_pinned, name in self._read))
        self._sizes = {run.name: self._sizes[run.name] for run in runs}
        return runs

    def _size(self, path: Path, rested_at: float) -> int:
        measured_at, size = self._sizes.get(path.name, (None, 0))
        if measured_at != rested_at:
            size = size_of(path)
            self._sizes[path.name] = rested_at, size
        return size


def named_folders(runs_dir: Path, specs: Iterable[str]) -> set[str]:
    """Names of the run folders that texts in these specs (JSON) name or lead to through links.

    Elsewhere the runs folder may be mounted at another place, so its own name is enough.
    """
    root, named = runs_dir.resolve(), re.compile(rf"(?:^|/){re.escape(runs_dir.name)}/+([^/]+)")
    names: set[str] = set()
    for text in {text for spec in specs for text in _texts(json.loads(spec))}:
        names |= set(named.findall(text))
        path = _resolved(text)
        if path is not None and path != root and path.is_relative_to(root):
            names.add(path.relative_to(root).parts[0])
    return names


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _resolved(text: str) -> Path | None:
    """Where a text that may be a path leads, from the router's folder on."""
    try:
        return Path(text).resolve() if "/" in text else None
    except (OSError, ValueError, RuntimeError):
        return None


def _written_at(path: Path) -> float:
    return (path / JOB_FILE).lstat().st_mtime


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
