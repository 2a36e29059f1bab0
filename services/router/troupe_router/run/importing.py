"""Brings the jobs of run folders back that Redis does not know: it was emptied, or lost a write.

Nothing starts by itself: a job that had not ended comes back as paused, and ``resume`` goes on from
its last checkpoint. A deleted job stays deleted. Never changes what Redis knows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from redis.asyncio import Redis

from troupe.errors import TroupeError
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog, StoredEvent
from troupe.runtime.streams.redis import redis_errors
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.job_file import BrokenFolderError, JobHead, with_spec
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.resume_checks import learnt_steps
from troupe_router.jobs.state import FINISHED, JobState
from troupe_router.jobs.store import JobStore
from troupe_router.run.events_file import kept_events
from troupe_router.run.folders import RunFolder, run_folders

_log = get_logger(__name__)

_AT_ONCE = 64
"""Run folders that are read, and jobs that are written, before the router serves others again."""

_COMES_BACK: Mapping[JobState, JobState] = {
    "queued": "paused",
    "launching": "pausing",
    "running": "pausing",
    "pausing": "pausing",
    "paused": "paused",
    "cancelling": "cancelling",
}
"""What a job that had not ended comes back as. A router takes a pausing or cancelling job up, ends
the processes that are left of it, and lets it rest."""


@dataclass(slots=True)
class Imported:
    """What an import did. ``broken`` is why by folder name; ``known``: jobs that Redis has."""

    jobs: list[str] = field(default_factory=list[str])
    broken: dict[str, str] = field(default_factory=dict[str, str])
    known: int = 0


class JobImport:
    """Imports the jobs of one runs folder."""

    def __init__(self, redis: Redis, store: JobStore, runs_dir: Path) -> None:
        self._redis = redis
        self._store = store
        self._runs_dir = runs_dir.absolute()

    async def is_due(self) -> bool:
        """Whether Redis has never seen an import: it is new, or it was emptied."""
        return not await self._redis.exists(keys.IMPORTED)

    async def run(self, *, is_dry: bool = False, with_guessed: bool = False) -> Imported:
        """Import every job that Redis does not know, and write ``job.json`` where it lacks.

        ``with_guessed``: those too whose folders an earlier version left; it did not record which
        jobs were deleted.
        """
        states = await self._store.states()
        pinned = await self._store.pinned(states)
        folders = await asyncio.to_thread(run_folders, self._runs_dir)
        outcome = Imported()
        lost: list[RunFolder] = []
        for folder in folders:
            name = folder.path.name
            if (state := states.get(name)) is not None:
                outcome.known += 1
                if not is_dry and _lags(folder, state, is_pinned=name in pinned):
                    await self._store.write_file(name)
            elif folder.fault:
                outcome.broken[name] = folder.fault
            elif folder.head and not folder.is_deleted and (folder.is_recorded or with_guessed):
                lost.append(folder)
        for start in range(0, len(lost), _AT_ONCE):
            read = await asyncio.to_thread(_read_all, lost[start : start + _AT_ONCE])
            outcome.broken |= {one.name: one.fault for one in read if one.record is None}
            if not is_dry:
                faults = await asyncio.gather(*map(self._try_restore, read))
                outcome.broken |= {name: fault for name, fault in faults if fault}
            whole = (one.name for one in read if one.record is not None)
            outcome.jobs += [name for name in whole if name not in outcome.broken]
        if not is_dry:
            await self._redis.set(keys.IMPORTED, "1")
            if outcome.jobs or outcome.broken:
                _log.info("jobs.imported", num_jobs=len(outcome.jobs), broken=outcome.broken)
        return outcome

    async def _try_restore(self, read: "_Read") -> tuple[str, str]:
        """The folder's name, and why what it holds can't be restored; "" where it was.

        Raises retryable errors: Redis is away, or takes no writes.
        """
        try:
            with redis_errors(f"run folder {read.name}"):
                await self._restore(read)
        except (TroupeError, ValueError, RecursionError) as error:
            if isinstance(error, TroupeError) and error.retryable:
                raise
            _log.error("job.not_restored", job_id=read.name, exc_info=error)
            return read.name, f"it can't be restored: {error}"
        return read.name, ""

    async def _restore(self, read: "_Read") -> None:
        if read.record is None:
            return
        record = _at_rest(read.record)
        log = EventLog(self._redis, record.job_id, source="router")
        await log.restore(read.events)
        if await self._store.restore(record, read.tracked):
            data = {"state": record.state, "reason": record.reason}
            await log.emit("job.state", data, event_id=f"{record.life}:{record.state}")
        if record != read.record or not read.is_recorded:
            await self._store.write_file(record.job_id)


@dataclass(frozen=True, slots=True)
class _Read:
    """All that a run folder has of its job; ``record`` is None where ``fault`` says why."""

    name: str
    record: JobRecord | None = None
    events: Sequence[StoredEvent] = ()
    tracked: Mapping[str, int] = field(default_factory=dict[str, int])
    is_recorded: bool = True
    fault: str = ""


def _read_all(folders: Sequence[RunFolder]) -> list[_Read]:
    return [_read(folder, folder.head) for folder in folders if folder.head]


def _read(folder: RunFolder, head: JobHead) -> _Read:
    path, name = folder.path, folder.path.name
    try:
        record = with_spec(path, head)
    except BrokenFolderError as error:
        return _Read(name, fault=error.message)
    try:
        events = kept_events(path, name)
    except BrokenFolderError as error:
        _log.warning("events.not_restored", job_id=name, why=error.message)
        events = []
    return _Read(name, record, events, head.tracked, folder.is_recorded)


def _lags(folder: RunFolder, state: str, *, is_pinned: bool) -> bool:
    """Whether ``job.json`` is not there, or says something else than Redis."""
    head = folder.head if folder.is_recorded else None
    return head is None or (head.state, head.is_pinned) != (state, is_pinned)


def _at_rest(record: JobRecord) -> JobRecord:
    """The record as it comes back: nothing works for the job any more."""
    if record.state in FINISHED or record.state == "paused":
        return record
    was = record.state
    step = learnt_steps(record.run_dir, record.spec)
    reason = (
        f"Redis lost the job while it was {was}; resume it: it goes on from the checkpoint of "
        f"step {step}, and what was played after that is played again"
    )
    to = _COMES_BACK[was]
    return replace(record, state=to, reason=record.reason if to == "cancelling" else reason)
