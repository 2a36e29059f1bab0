"""Everything that works for one job in one router: built together, run together, ended together.

Owns the wiring of a job's parts. Never decides what the job's state is; the controller does.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn

from redis.asyncio import Redis

from troupe.aio import first_to_end
from troupe.episodes.build import load_parts
from troupe.errors import JobFailedError
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe_router.conduct.components import JobComponents
from troupe_router.conduct.conducted import Conducted
from troupe_router.conduct.rounds import RoundRunner
from troupe_router.conduct.watchdog import Watchdog
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore
from troupe_router.run.recorder import Recorder
from troupe_router.settings import RouterSettings


@dataclass(frozen=True, slots=True)
class JobTasksParts:
    """What a job's tasks are built from."""

    job: JobRecord
    settings: RouterSettings
    redis: Redis
    ledger: StepLedger
    store: JobStore
    members: MemberStore
    events: EventLog
    components: JobComponents
    conducted: Conducted
    disk: DiskSpace
    memory: RedisMemory


@dataclass(frozen=True, slots=True)
class JobTasks:
    """The tasks that work for the job in this router. ``build`` creates it."""

    recorder: Recorder
    conductor: RoundRunner
    watchdog: Watchdog

    @classmethod
    async def build(cls, parts: JobTasksParts) -> "JobTasks":
        """Load what the spec names and wire it up; raises SpecInvalidError."""
        job = parts.job
        loaded = await asyncio.to_thread(load_parts, job.spec)
        # Rows of prepared files are compared, which takes seconds for a hundred thousand.
        taskset = await asyncio.to_thread(loaded.family.taskset)
        ledger = parts.ledger
        recorder = _recorder(parts, ledger)
        conductor = RoundRunner(
            job,
            ledger,
            parts.store,
            recorder,
            parts.events,
            taskset,
            missing=parts.components.missing,
            disk=parts.disk,
            memory=parts.memory,
            records_tokens=parts.settings.record_tokens,
            held_at=lambda: max(parts.components.held_at, parts.conducted.since),
        )
        watchdog = Watchdog(
            job,
            redis=parts.redis,
            store=parts.store,
            members=parts.members,
            events=parts.events,
            settings=parts.settings,
            disk=parts.disk,
            memory=parts.memory,
        )
        return cls(recorder, conductor, watchdog)

    async def conduct(self) -> dict[str, Any]:
        """Conduct every step; returns the trainer's result once all is recorded."""
        result = await self.conductor.run()
        await self.recorder.finish()
        await self.watchdog.report_room()
        return result

    async def run(
        self, conducting: Coroutine[Any, Any, dict[str, Any]], *others: Coroutine[Any, Any, Any]
    ) -> dict[str, Any]:
        """What ``conducting`` returns, while everybody else works; raises the first error."""
        working = (self.recorder.run(), self.watchdog.run(), *others)
        return await first_to_end(conducting, *map(_forever, working))


def _recorder(parts: JobTasksParts, ledger: StepLedger) -> Recorder:
    return Recorder(
        parts.job,
        ledger,
        parts.store,
        parts.events,
        fraction=parts.settings.record_fraction,
        tokens_per_s=parts.settings.record_tokens_per_s,
        with_tokens=parts.settings.record_tokens,
    )


async def _forever(work: Coroutine[Any, Any, Any]) -> NoReturn:
    """Background work of a job: its end would be a bug."""
    await work
    raise JobFailedError("background work of the job ended by itself; see the router's log")
