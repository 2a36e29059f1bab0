"""Plays the tickets of all running jobs in this process, alongside any number of other processes.

Level-triggered on the job records: a running job is played; one that is paused, cancelled or over
is left at the next look, and a new life of it gets a new player. Owns one player per job. Never
opens a round and never changes a job's state.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from redis.asyncio import Redis
from redis.exceptions import RedisError

from troupe.aio import cancel_all
from troupe.errors import TroupeError
from troupe.retry import Backoff
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.retry import is_away
from troupe.runtime.streams.versions import NewerRecordError
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore
from troupe_router.play import job_series
from troupe_router.play.job_player import JobPlayer, PlayOptions

_log = get_logger(__name__)
_LOOK_S = 0.5
_BACKOFF = Backoff(0.4, 5.0)


@dataclass(frozen=True, slots=True)
class _Playing:
    life: int
    player: JobPlayer
    task: asyncio.Task[None]


class Players:
    """The jobs that this process plays."""

    def __init__(
        self, redis: Redis, store: JobStore, members: MemberStore, options: PlayOptions
    ) -> None:
        self._redis = redis
        self._store = store
        self._members = members
        self._options = options
        self._playing: dict[str, _Playing] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._is_draining = False

    async def run(self) -> NoReturn:
        """Play until cancelled. Running episodes continue while Redis is unavailable."""
        try:
            while True:
                if not self._is_draining:
                    try:
                        await self._look()
                    except (RedisError, TroupeError) as error:
                        _log.warning("play.look_failed", error=str(error))
                await asyncio.sleep(_LOOK_S)
        finally:
            await self.close()

    async def drain(self) -> None:
        """Claim no more tickets, and wait until those that are being played have ended."""
        self._is_draining = True
        await asyncio.gather(*(playing.player.drain() for playing in self._playing.values()))

    async def close(self) -> None:
        """Leave every job and release the tickets being played."""
        self._is_draining = True
        await self._leave(list(self._playing))

    async def _look(self) -> None:
        jobs = {
            record.job_id: record
            for record in await self._store.unfinished()
            if record.is_active and self._options.job_id in ("", record.job_id)
        }
        await self._reap(jobs)
        over = [
            job_id
            for job_id, playing in self._playing.items()
            if job_id not in jobs or jobs[job_id].life != playing.life
        ]
        await self._leave(over)
        for job_id in self._failures.keys() - jobs.keys():
            del self._failures[job_id], self._not_before[job_id]
            job_series.end(job_id, linger_s=self._options.series_linger_s)
        now = time.monotonic()
        for job_id, record in jobs.items():
            if job_id not in self._playing and now >= self._not_before.get(job_id, 0.0):
                self._begin(record)

    def _begin(self, record: JobRecord) -> None:
        _log.info("play.began", job_id=record.job_id, life=record.life)
        job_series.begin(record.job_id)
        player = JobPlayer(record, self._redis, self._members, self._options)
        task = asyncio.create_task(player.run(), name=f"play:{record.job_id}")
        self._playing[record.job_id] = _Playing(record.life, player, task)

    async def _leave(self, job_ids: Iterable[str]) -> None:
        left = {job_id: self._playing.pop(job_id) for job_id in job_ids}
        await cancel_all(*(playing.task for playing in left.values()))
        for job_id in left:
            _log.info("play.left", job_id=job_id)
            job_series.end(job_id, linger_s=self._options.series_linger_s)

    async def _reap(self, jobs: dict[str, JobRecord]) -> None:
        """Note the players that ended by themselves; each is restarted after a pause."""
        for job_id, playing in list(self._playing.items()):
            if not playing.task.done():
                continue
            del self._playing[job_id]
            failures = self._failures[job_id] = self._failures.get(job_id, 0) + 1
            pause_s = _BACKOFF.pause_s(failures)
            self._not_before[job_id] = time.monotonic() + pause_s
            error = None if playing.task.cancelled() else playing.task.exception()
            if error is None:
                continue
            _log.warning("play.interrupted", job_id=job_id, again_in_s=pause_s, exc_info=error)
            if job_id in jobs and jobs[job_id].life == playing.life and _is_permanent(error):
                await StepLedger(self._redis, job_id).fail(_reason(error))


def _is_permanent(error: BaseException) -> bool:
    """Whether every retry would fail, here and in every process of this version.

    A newer version's ticket is played by processes of that version.
    """
    return not (isinstance(error, NewerRecordError) or is_away(error) or is_transient(error))


def _reason(error: BaseException) -> str:
    if isinstance(error, TroupeError):
        return error.message
    return f"unexpected {type(error).__name__}: {error}"
