"""Drives one job from its present state to its end; may be stopped and restarted at any point.

Owns the job's state changes and the lifetime of everything that works for it in this router.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from redis.asyncio import Redis
from redis.exceptions import RedisError

from troupe.aio import WallClockDeadline
from troupe.errors import FencedError, JobFailedError, TroupeError, UnavailableError
from troupe.runtime.disk_space import DiskSpace
from troupe.runtime.launch.launcher import Launcher
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.fencing import Fence
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.memory import RedisMemory
from troupe.runtime.streams.retry import until_redis_answers
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient
from troupe.spec.deadlines import load_s, startup_s
from troupe_router.conduct.components import JobComponents
from troupe_router.conduct.conducted import Conducted
from troupe_router.conduct.job_tasks import JobTasks, JobTasksParts
from troupe_router.jobs.queue import Quota
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import FINISHED, JobState
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore
from troupe_router.run import job_metrics
from troupe_router.run.events_file import keep_events
from troupe_router.run.record_restore import JobRecords
from troupe_router.run.recorder import Recorder
from troupe_router.run.summary import find_commit, summarize, write_summary
from troupe_router.run.trackers import Trackers
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)
_RESTING: frozenset[JobState] = frozenset({*FINISHED, "queued", "paused"})
"""States in which no router conducts a job."""
_LOOK_S = 0.2
"""Between two looks at what a starting job lacks."""
_ASKED_S = 0.5
"""Between two looks at what the user asked of the job."""
_REDIS_AWAY_S = 60.0
"""How long a read of the job's state waits for Redis; then another controller takes over."""


class Cancelled(Exception):  # noqa: N818 (the user's wish, not a failure)
    """The user asked the job to end."""


class Paused(Exception):  # noqa: N818 (the user's wish, not a failure)
    """The user asked the job to pause."""


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """What every controller of a router shares. ``router`` is this router's gRPC address.

    ``disk`` is the run folders', ``memory`` that of Redis; somebody looks at them.
    ``replica_limits`` returns the quotas of API keys.
    """

    settings: RouterSettings
    redis: Redis
    store: JobStore
    members: MemberStore
    launcher: Launcher | None
    router: str
    disk: DiskSpace
    replica_limits: Callable[[], Mapping[str, int]] = dict
    memory: RedisMemory = field(default_factory=RedisMemory)

    def quota(self) -> Quota:
        """What jobs may take together."""
        settings = self.settings
        return Quota(settings.max_replicas, settings.most_jobs, self.replica_limits())


class JobController:
    """One job in this router."""

    def __init__(self, parts: ControllerParts, job: JobRecord) -> None:
        self._parts = parts
        self._job = job
        self._events = EventLog(parts.redis, job.job_id, source="router")
        self._ledger = StepLedger(parts.redis, job.job_id)
        self._fence: Fence | None = None
        self._recorder: Recorder | None = None
        self._trackers = Trackers(job, parts.store, self._events)
        self._components = JobComponents(
            job,
            parts.settings,
            parts.launcher,
            parts.members,
            self._events,
            router=parts.router,
        )
        self._conducted = Conducted(
            parts.store, self._ledger, job.job_id, held_at=self._last_held_at
        )

    async def run(self) -> None:
        """Drive the job to its end.

        Raises retryable errors, and FencedError when another router conducts the job meanwhile:
        whoever holds the job's lease starts another controller then.
        """
        try:
            await self._run()
        finally:
            self._trackers.abandon()
            # Also where the lease was lost or the job paused: nobody here keeps them right now.
            job_metrics.end(self._job.job_id, linger_s=self._parts.settings.series_linger_s)

    async def _run(self) -> None:
        result: dict[str, Any] | None = None
        holder = f"the router at {self._parts.router}"
        try:
            self._fence = await self._ledger.take("router", holder)
            now = await self._parts.store.state(self._job.job_id)
            if now in _RESTING and now != self._job.state:
                return  # the router before this one went on until the term began
            if self._job.state == "cancelling":
                raise Cancelled
            if self._job.state == "pausing":
                raise Paused
            if self._job.state == "queued":
                await self._become("launching")
            result = await self._drive()
            state, reason = "succeeded", ""
        except Paused:
            if await self._pause():
                return
            state, reason = "cancelled", "cancelled by the user"
        except Cancelled:
            state, reason = "cancelled", self._job.reason or "cancelled by the user"
        except (RedisError, FencedError):
            raise
        except TroupeError as error:
            if error.retryable:
                raise
            state, reason = "failed", await self._cause(error)
        except Exception as error:
            if is_transient(error):
                raise await self._lacking(error) from error
            _log.error("job.crashed", job_id=self._job.job_id, exc_info=error)
            state, reason = "failed", f"unexpected {type(error).__name__}: {error}"
        await self._end(state, reason, result)

    async def _lacking(self, error: Exception) -> UnavailableError:
        """Report once per life that this machine lacks a resource; the job resumes with it."""
        what = str(error) or type(error).__name__
        message = (
            f"this router's machine lacks something ({what}); the job goes on when it is there "
            "again: free disk space, memory or file descriptors"
        )
        kind = error.errno if isinstance(error, OSError) else type(error).__name__
        event_id = f"{self._job.life}:job.interrupted:{kind}"
        await self._events.emit("job.interrupted", {"reason": message}, event_id=event_id)
        return UnavailableError(message)

    async def _cause(self, error: TroupeError) -> str:
        """The root cause: the trainer's own error explains more than the fact that it ended."""
        failure = await StepLedger(self._parts.redis, self._job.job_id).failure()
        return failure or error.message

    async def _pause(self) -> bool:
        """End the processes and pause; the ledger stays. False: the job was cancelled."""
        await self._components.stop()
        asked = await self._parts.store.get(self._job.job_id)
        try:
            await self._become("paused", asked.reason or "paused by the user")
        except Cancelled:
            return False
        await self._keep_events()
        return True

    async def stop_processes(self) -> None:
        """Leave the job without ending it: this router goes down."""
        await self._components.leave()

    async def _drive(self) -> dict[str, Any]:
        """Run everything that works for the job; returns its result."""
        parts, job = self._parts, self._job
        await self._conducted.begin()
        job_tasks = await JobTasks.build(
            JobTasksParts(
                job,
                parts.settings,
                parts.redis,
                self._ledger,
                parts.store,
                parts.members,
                self._events,
                self._components,
                self._conducted,
                parts.disk,
                parts.memory,
            )
        )
        self._recorder = job_tasks.recorder
        job_metrics.begin(job.job_id, job.spec.steps, job.spec.policies)
        return await job_tasks.run(
            self._conduct(job_tasks),
            self._components.keep(),
            self._watch_cancel(),
            self._conducted.keep(),
            self._trackers.run(lambda: job_tasks.recorder.lines),
        )

    async def _conduct(self, job_tasks: JobTasks) -> dict[str, Any]:
        if self._job.state == "launching":
            await self._wait_started()
            await self._conducted.begin_anew()  # a step that was open has its time after the start
            await self._become("running")
        return await job_tasks.conduct()

    async def _wait_started(self) -> None:
        """Wait until every service serves and the first version of each policy is published."""
        limits, limit_s = self._job.spec.limits, await asyncio.to_thread(startup_s, self._job.spec)
        patience, began = WallClockDeadline(limit_s), self._job.started_at or time.time()
        ledger = StepLedger(self._parts.redis, self._job.job_id)
        while True:
            failure = await ledger.failure()
            if failure is not None:
                raise JobFailedError(failure)
            missing = await self._components.missing()
            if not missing:
                versions = await ledger.versions()
                late = [p for p in self._job.spec.policies if p not in versions]
                missing = [f"the trainer's first version of policy '{p}'" for p in late]
            if not missing:
                return
            if patience.left_s(max(began, self._last_held_at(), self._conducted.since)) <= 0:
                raise JobFailedError(
                    f"not everything was up within {limit_s:.0f} s (limits.startup_timeout_s = "
                    f"{limits.startup_timeout_s:g} s, and {load_s(self._job.spec):.0f} s to load "
                    "the models; images were pulled before); "
                    f"missing: {', '.join(missing)}. Look at {self._job.run_dir / 'logs'}"
                )
            await asyncio.sleep(_LOOK_S)

    def _last_held_at(self) -> float:
        """When a full disk, a queue or the pulling of images last held the job back."""
        return max(self._parts.disk.short_at, self._components.held_at)

    async def _watch_cancel(self) -> NoReturn:
        while True:
            state = await until_redis_answers(
                partial(self._parts.store.state, self._job.job_id),
                f"state of job {self._job.job_id}",
                within_s=_REDIS_AWAY_S,
            )
            if state is None:
                raise JobFailedError("the job's record vanished from Redis")
            if state == "cancelling":
                raise Cancelled
            if state == "pausing":
                raise Paused
            await asyncio.sleep(_ASKED_S)

    async def _become(
        self, state: JobState, reason: str = "", *, deleting: Sequence[str] = ()
    ) -> None:
        """Change the job's state; see ``JobStore.transition``. Raises what the user asked for."""
        store, job_id = self._parts.store, self._job.job_id
        try:
            self._job = await store.transition(
                job_id, state, reason=reason, fence=self._fence, deleting=deleting
            )
        except FencedError:
            raise
        except TroupeError as error:
            now = await self._parts.store.state(self._job.job_id)
            if now == "cancelling":
                raise Cancelled from error
            if now == "pausing":
                raise Paused from error
            raise
        _log.info("job.state", job_id=self._job.job_id, state=state, reason=reason)
        event_id = f"{self._job.life}:{state}"
        data = {"state": state, "reason": reason}
        await self._events.emit("job.state", data, event_id=event_id)

    async def _end(self, state: JobState, reason: str, result: dict[str, Any] | None) -> None:
        """Stop everything, write the summary, and only then say that the job is over.

        A superseded router may have reasons, such as a deadline that passed while it was frozen;
        they end nothing. A cancellation from here on comes too late: the summary is written. The
        ledger goes with the change of the state, and the events are kept before it: once a job is
        over, no router takes it up again for what is left.
        """
        await self._ledger.check()
        summary = await self._summary(state, reason, result)
        await asyncio.gather(self._components.stop(), self._write(summary))
        await self._record_rest()
        lines, _ = await self._records()
        await self._trackers.close(lines, state)
        if await self._parts.store.state(self._job.job_id) == "queued":
            await self._become("launching")
        await self._keep_events()
        await self._become(state, reason, deleting=await self._ledger.every_key())
        await self._keep_events()

    async def _keep_events(self) -> None:
        try:
            await keep_events(self._events, self._job.run_dir)
        except OSError as error:
            _log.error("events.not_kept", job_id=self._job.job_id, error=str(error))

    async def _summary(
        self, state: JobState, reason: str, result: dict[str, Any] | None
    ) -> dict[str, Any]:
        commit = self._parts.settings.commit or await find_commit()
        lines, losses = await self._records()
        outcome = partial(
            summarize, self._job, state=state, reason=reason, commit=commit, losses=losses
        )
        try:
            return outcome(lines, result)
        except (LookupError, TypeError, ValueError) as error:
            # Not this version's lines, or not Troupe's: they keep no job from ending.
            _log.error("metrics.not_summarized", job_id=self._job.job_id, error=repr(error))
            return outcome([], result)

    async def _records(self) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """The lines of metrics.jsonl, and what the job's records lack.

        A job may end before a recorder was here, or before it read the files: those of earlier
        controllers are read then.
        """
        if self._recorder and self._recorder.lines:
            return self._recorder.lines, self._recorder.losses
        try:
            records = await asyncio.to_thread(JobRecords.read, self._job.run_dir)
            stored = await asyncio.to_thread(records.metrics.lines)
        except OSError as error:
            if is_transient(error):
                raise
            _log.error("metrics.not_read", job_id=self._job.job_id, error=str(error))
            return [], []
        return [line for _, line in stored], records.losses

    async def _record_rest(self) -> None:
        """Record a round that was complete but not recorded when the job was told to stop.

        The trainer has ended by now and may have learnt from it; a later life goes on after it.
        """
        reached = min((await self._ledger.versions()).values(), default=0)
        for step in (reached - 1, reached):
            if self._recorder:
                await self._recorder.catch_up(step)

    async def _write(self, summary: dict[str, Any]) -> None:
        """Write the summary; raises OSError, which passes, when the disk is full."""
        try:
            await write_summary(self._job.run_dir, summary)
        except OSError as error:
            if is_transient(error):
                raise
            _log.error("summary.failed", job_id=self._job.job_id, error=str(error))
