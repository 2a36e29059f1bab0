"""Gives every unfinished job one controller, also the jobs of a router that died.

Owns leases and controller tasks. An outage of Redis is normal: controllers are restarted when it
is back.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError

from troupe.aio import cancel_all
from troupe.errors import TroupeError
from troupe.retry import STEADY, Backoff
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.conduct.controller import ControllerParts, JobController
from troupe_router.conduct.lease import Lease
from troupe_router.jobs.queue import places
from troupe_router.jobs.record import JobRecord

_log = get_logger(__name__)
_LOOK_S = 0.2
_BACKOFF = Backoff(0.4, 5.0, STEADY)


@dataclass(slots=True)
class _Charge:
    controller: JobController
    task: asyncio.Task[None]
    lease: Lease
    renew_at: float


class JobSupervisor:
    """The jobs that this router conducts."""

    def __init__(self, parts: ControllerParts, *, holder: str) -> None:
        self._parts = parts
        self._holder = holder
        self._charges: dict[str, _Charge] = {}
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._is_draining = False
        self._queue = Lease(parts.redis, "queue", holder, ttl_s=parts.settings.lease_ttl_s)

    async def run(self) -> None:
        """Take charge of jobs until cancelled."""
        while not self._is_draining:
            try:
                await self._reap()
                await self._renew()
                records = await self._parts.store.unfinished()
                await self._admit(records)
                for record in records:
                    if record.state != "queued":
                        await self._take(record)
            except (RedisError, TroupeError) as error:
                if isinstance(error, TroupeError) and not error.retryable:
                    raise
                _log.warning("supervisor.redis_is_away", error=str(error))
            await asyncio.sleep(_LOOK_S)
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Stop conducting and end the processes; the jobs go on with the next router."""
        self._is_draining = True
        charges = list(self._charges.values())
        await cancel_all(*(charge.task for charge in charges))
        stopping = [c.controller.stop_processes() for c in charges]
        for outcome in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.warning("drain.stop_failed", error=str(outcome))
        releasing = [c.lease.release() for c in charges]
        await asyncio.gather(*releasing, self._queue.release(), return_exceptions=True)

    async def close(self) -> None:
        """Cancel what still runs."""
        await cancel_all(*(charge.task for charge in self._charges.values()))

    async def _admit(self, records: Sequence[JobRecord]) -> None:
        """Start the queued jobs that fit the quota; one router at a time does this."""
        if all(record.state != "queued" for record in records):
            return
        if not await self._queue.hold():
            return
        for place in places(records, self._parts.quota()):
            if place.waits_for:
                continue
            try:
                record = await self._parts.store.transition(place.job.job_id, "launching")
            except TroupeError as error:
                _log.info("job.not_admitted", job_id=place.job.job_id, reason=error.message)
                continue
            log = EventLog(self._parts.redis, record.job_id, source="router")
            data = {"state": record.state, "reason": ""}
            await log.emit("job.state", data, event_id=f"{record.life}:{record.state}")
            await self._take(record)

    async def _take(self, record: JobRecord) -> None:
        job_id = record.job_id
        if job_id in self._charges or time.monotonic() < self._not_before.get(job_id, 0.0):
            return
        ttl_s = self._parts.settings.lease_ttl_s
        lease = Lease(self._parts.redis, f"job:{job_id}", self._holder, ttl_s=ttl_s)
        if not await lease.hold():
            return
        fresh = await self._parts.store.find(job_id)
        if fresh is None or fresh.is_finished or fresh.state in ("queued", "paused"):
            await lease.release()
            return
        _log.info("job.taken", job_id=job_id, state=fresh.state)
        controller = JobController(self._parts, fresh)
        task = asyncio.create_task(controller.run(), name=f"job:{job_id}")
        self._charges[job_id] = _Charge(controller, task, lease, time.monotonic() + ttl_s / 3)

    async def _renew(self) -> None:
        for job_id, charge in self._charges.items():
            if time.monotonic() < charge.renew_at:
                continue
            if await charge.lease.hold():
                charge.renew_at = time.monotonic() + self._parts.settings.lease_ttl_s / 3
            else:
                _log.warning("job.lost", job_id=job_id)
                charge.task.cancel()

    async def _reap(self) -> None:
        for job_id, charge in list(self._charges.items()):
            if not charge.task.done():
                continue
            del self._charges[job_id]
            error = None if charge.task.cancelled() else charge.task.exception()
            if error is None:
                self._failures.pop(job_id, None)
            else:
                failures = self._failures[job_id] = self._failures.get(job_id, 0) + 1
                pause_s = _BACKOFF.pause_s(failures)
                self._not_before[job_id] = time.monotonic() + pause_s
                _log.warning("job.interrupted", job_id=job_id, again_in_s=pause_s, error=str(error))
            await charge.lease.release()
