"""Monitors one job: what it waits for, how long, and which streams fill up.

Emits "phase.overdue" once when a phase exceeds limits.phase_deadline_s, with the names of what it
waits for, and "phase.resolved" when it ends after all. Never ends a job; the conductor's deadlines
do.
"""

import asyncio

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.errors import TroupeError
from troupe.runtime.disk_space import DiskSpace, Shortage
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe.runtime.streams.redis import redis_errors
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.conduct.progress import ProgressReader, Waiting
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)


class Watchdog:
    """Looks at one job every ``settings.watch_s``."""

    def __init__(
        self,
        job: JobRecord,
        *,
        redis: Redis,
        store: JobStore,
        members: MemberStore,
        events: EventLog,
        settings: RouterSettings,
        disk: DiskSpace,
        memory: RedisMemory,
    ) -> None:
        self._job_id = job.job_id
        self._redis = redis
        self._store = store
        self._members = members
        self._events = events
        self._settings = settings
        self._disk = disk
        self._memory = memory
        self._progress = ProgressReader(redis, members, settings, disk, memory)
        self._reported: dict[str, tuple[float, float]] = {}
        self._overdue: Waiting | None = None
        self._seen: set[str] = set()
        self._serving: set[str] = set()

    async def run(self) -> None:
        """Watch until cancelled; a look that fails is tried again."""
        while True:
            try:
                await self.look()
            except (TroupeError, OSError) as error:
                _log.warning("watchdog.look_failed", job_id=self._job_id, error=str(error))
            await asyncio.sleep(self._settings.watch_s)

    async def report_room(self) -> None:
        """Report a time without room that ended; a job may end before the next look."""
        if (job := await self._job()) is not None:
            await self._report_room(job)

    async def look(self) -> None:
        """Look once: set the gauges and report what changed."""
        job = await self._job()
        if job is None or job.is_finished:
            return
        await self._report_room(job)
        waiting = await self._progress.look(job)
        self._show(waiting)
        await self._report(waiting)
        await self._measure(job)

    async def _job(self) -> JobRecord | None:
        with redis_errors(f"record of job {self._job_id}"):
            return await self._store.find(self._job_id)

    def _show(self, waiting: Waiting) -> None:
        for_s = waiting.to_json()["for_s"] or 0.0
        self._seen.add(waiting.phase)
        for phase in self._seen:
            is_present = phase == waiting.phase
            metrics.JOB_WAITING_SECONDS.labels(self._job_id, phase).set(for_s * is_present)
            overdue = is_present and waiting.is_overdue
            metrics.JOB_OVERDUE.labels(self._job_id, phase).set(overdue)

    async def _report(self, waiting: Waiting) -> None:
        before = self._overdue
        is_same = before is not None and (before.phase, before.step) == (
            waiting.phase,
            waiting.step,
        )
        if before is not None and not (is_same and waiting.is_overdue):
            await self._emit("phase.resolved", before)
            self._overdue = None
        if waiting.is_overdue and not is_same:
            await self._emit("phase.overdue", waiting)
            self._overdue = waiting

    async def _report_room(self, job: JobRecord) -> None:
        await self._report_shortage(
            job, "disk", f"The disk of {self._disk.folder}", self._disk.shortage
        )
        await self._report_shortage(job, "redis", "Redis", self._memory.shortage)

    async def _report_shortage(
        self, job: JobRecord, of: str, name: str, shortage: Shortage | None
    ) -> None:
        """Report the last time without room, once each: afterwards where Redis took no writes."""
        if shortage is None or 0 < shortage.ended_at < job.started_at:
            return
        if self._reported.get(of) == (shortage.began_at, shortage.ended_at):
            return
        mark = round(shortage.began_at, 3)
        data = {"sentence": shortage.sentence, "began_at": shortage.began_at}
        await self._events.emit(f"{of}.low", data, event_id=f"{of}.low:{mark}")
        if shortage.ended_at:
            for_s = round(shortage.ended_at - shortage.began_at, 1)
            data = {"sentence": f"{name} has room again after {for_s} s.", "for_s": for_s}
            await self._events.emit(f"{of}.resolved", data, event_id=f"{of}.resolved:{mark}")
        self._reported[of] = shortage.began_at, shortage.ended_at

    async def _emit(self, type: str, waiting: Waiting) -> None:
        event_id = f"{type}:{waiting.phase}:{waiting.step}:{round(waiting.since)}"
        _log.warning(type, job_id=self._job_id, sentence=waiting.sentence)
        await self._events.emit(type, waiting.to_json(), event_id=event_id)

    async def _measure(self, job: JobRecord) -> None:
        streams = {"tickets": (keys.tickets(job.job_id), keys.WORKERS_GROUP)}
        for policy in job.spec.policies:
            streams[f"groups:{policy}"] = (keys.groups(job.job_id, policy), keys.TRAINER_GROUP)
        for name, (key, group) in streams.items():
            size = await self._unacknowledged(key, group)
            metrics.JOB_STREAM_ENTRIES.labels(job.job_id, name).set(size)
        await self._measure_lag(job)

    async def _measure_lag(self, job: JobRecord) -> None:
        """How far each replica that serves is behind; one that loads or left is not."""
        versions = await StepLedger(self._redis, job.job_id).versions()
        rollouts = await self._members.of_job(job.job_id, ReplicaKind.REPLICA_KIND_ROLLOUT)
        serving = [member.replica for member in rollouts if member.replica.is_serving]
        for replica in serving:
            lags = [
                versions[held.policy] - held.active_version
                for held in replica.policies
                if held.policy in versions and job.spec.trains(held.policy)
            ]
            metrics.JOB_VERSION_LAG.labels(job.job_id, replica.replica_id).set(max([0, *lags]))
        names = {replica.replica_id for replica in serving}
        for gone in self._serving - names:
            metrics.JOB_VERSION_LAG.remove_by_labels({"job_id": job.job_id, "replica": gone})
        self._serving = names

    async def _unacknowledged(self, key: str, group: str) -> int:
        """Entries that were not read by ``group`` or are pending there; all before it exists."""
        with redis_errors(f"stream {key}"):
            try:
                groups = await self._redis.xinfo_groups(key)
            except ResponseError:
                return 0
            matching = [g for g in groups if _text(g["name"]) == group]
            if not matching:
                return int(await self._redis.xlen(key))
        return int(matching[0]["pending"]) + int(matching[0].get("lag") or 0)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
