"""Keeps Redis and the run folders together: at the start, and whenever Redis was emptied.

Owns the times of importing, of writing ``job.json`` again, and of retention. A failure of these
stops no job.
"""

import asyncio
import time
from pathlib import Path

from redis.exceptions import RedisError

from troupe.errors import TroupeError
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.discard import remove_discarded
from troupe_router.jobs.store import JobStore
from troupe_router.run.importing import JobImport
from troupe_router.run.pruning import RunPruning
from troupe_router.run.retention import RetentionLimits
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)
_LOOK_S = 1.0
_JUMP_S = 60.0
_DISTRUST_S = 3600.0
"""After the clock was set, retention waits at least so long: a wrong clock makes every run old."""


class RunFolderKeeper:
    """The run folders of one router. ``start`` comes before it answers, ``run`` goes on."""

    def __init__(
        self, store: JobStore, importing: JobImport, pruning: RunPruning, settings: RouterSettings
    ) -> None:
        self._store = store
        self._importing = importing
        self._pruning = pruning
        self._limits = limits_of(settings)
        self._every_s = settings.retention_every_s
        self._runs_dir: Path = settings.runs_dir
        self._next_pruning = time.monotonic()
        self._clock_offset = _clock_offset()
        self._owes_start = False

    async def start(self) -> None:
        """Import what Redis does not know, and remove what a killed removal left.

        Where that fails, the router starts all the same and says so; ``run`` makes up for it.
        """
        try:
            await self._begin()
        except Exception as error:
            self._owes_start = True
            path = str(self._runs_dir)
            _log.error("run_folders.not_read", path=path, error=str(error), exc_info=_bug(error))

    async def _begin(self) -> None:
        await self._importing.run()
        await asyncio.to_thread(remove_discarded, self._runs_dir)
        self._owes_start = False

    async def run(self) -> None:
        """Look every second, until cancelled. No failure ends it: nobody would look any more."""
        while True:
            try:
                await self._look()
            except Exception as error:
                _log.warning("run_folders.not_kept", error=str(error), exc_info=_bug(error))
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        if self._owes_start:
            await self._begin()
        elif await self._importing.is_due():
            await self._importing.run()
        for job_id in list(self._store.unwritten):
            await self._store.write_file(job_id)
        self._watch_clock()
        if self._limits.is_on and time.monotonic() >= self._next_pruning:
            self._next_pruning = time.monotonic() + self._every_s
            await self._pruning.run(self._limits)

    def _watch_clock(self) -> None:
        before, self._clock_offset = self._clock_offset, _clock_offset()
        by_s = self._clock_offset - before
        if abs(by_s) > _JUMP_S and self._limits.is_on:
            wait_s = max(self._every_s, _DISTRUST_S)
            self._next_pruning = time.monotonic() + wait_s
            _log.warning("clock.was_set", by_s=round(by_s), retention_in_s=wait_s)


def _bug(error: Exception) -> Exception | None:
    """The error if its place in the code must be logged: no disk and no Redis explains it."""
    return None if isinstance(error, RedisError | TroupeError | OSError) else error


def _clock_offset() -> float:
    """The wall clock less the time since the machine started, in seconds."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def limits_of(settings: RouterSettings) -> RetentionLimits:
    """The limits that the operator set."""
    return RetentionLimits(
        settings.retention_max_age_s,
        settings.retention_max_jobs,
        settings.retention_max_bytes,
        settings.retention_resumable_s,
    )
