"""Keeps a job's processes running, and says which of its parts are missing.

Owns the calls to the launcher for one job. Never decides what a failed component means for the
job beyond raising JobFailedError.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.aio import WallClockDeadline
from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.errors import JobFailedError, TroupeError
from troupe.runtime.launch.launcher import PULLING, QUEUED, ComponentStatus, Launcher
from troupe.runtime.launch.records import plain_lines
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.pools import num_serving, rollout_pools
from troupe_router.jobs.processes import components, needs, replica_id, trainer_name
from troupe_router.jobs.record import JobRecord
from troupe_router.members.store import MemberStore
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)


@dataclass(slots=True)
class _Hold:
    """A condition that stops the job's other deadlines and has one of its own."""

    condition: str
    patience: WallClockDeadline
    limit: str
    advice: str
    since: float = 0.0


class JobComponents:
    """The processes of one job. ``launcher`` None: something else runs them."""

    def __init__(
        self,
        job: JobRecord,
        settings: RouterSettings,
        launcher: Launcher | None,
        members: MemberStore,
        events: EventLog,
        *,
        router: str,
    ) -> None:
        self._job = job
        self._settings = settings
        self._launcher = launcher
        self._members = members
        self._events = events
        self._desired = components(job.job_id, job.spec, settings, router=router)
        self._statuses: dict[str, ComponentStatus] = {}
        self.held_at = 0.0
        """When a queue or the pulling of images alone were last seen to hold the job back, in Unix
        seconds: every component that did not run was in one of them."""
        limits = job.spec.limits
        self._holds = [
            _Hold(
                QUEUED,
                WallClockDeadline(limits.queue_timeout_s),
                f"limits.queue_timeout_s = {limits.queue_timeout_s:g} s",
                "Give the queue room or another name (kueueQueue of the chart)",
            ),
            _Hold(
                PULLING,
                WallClockDeadline(limits.image_pull_timeout_s),
                f"limits.image_pull_timeout_s = {limits.image_pull_timeout_s:g} s",
                "Have the nodes pull from a nearer registry, or before the job",
            ),
        ]

    async def keep(self) -> None:
        """Reconcile until cancelled; raises JobFailedError when a component cannot run."""
        while self._launcher is not None:
            statuses = await self._reconcile(self._launcher)
            for status in statuses:
                await self._look_at(status)
            self._look_at_holds(statuses)
            await asyncio.sleep(self._settings.reconcile_s)
        await asyncio.Event().wait()

    async def leave(self) -> None:
        """This router shuts down: end the processes, unless the next router adopts them."""
        if self._launcher is not None and not self._launcher.outlives_caller:
            await self.stop()

    async def stop(self) -> None:
        """End the job's processes."""
        if self._launcher is not None:
            await self._launcher.stop(self._job.job_id, grace_s=self._settings.grace_s * 0.6)
            names = [replica_id(self._job.job_id, c.name) for c in self._desired]
            await self._members.remove(names, reason="its process was stopped")

    async def missing(self) -> list[str]:
        """What does not serve yet, in words, with the known reason."""
        wanted = needs(self._job.spec, self._settings)
        envs = 0
        trainers: set[str] = set()
        rollouts: list[Sequence[str]] = []
        for member in await self._members.of_job(self._job.job_id):
            replica = member.replica
            if not replica.is_serving and replica.kind != ReplicaKind.REPLICA_KIND_TRAINER:
                continue
            if replica.kind == ReplicaKind.REPLICA_KIND_TRAINER:
                trainers.update(("", *member.policies))
            elif replica.kind == ReplicaKind.REPLICA_KIND_ENV:
                envs += 1
            else:
                rollouts.append(member.policies)
        missing: list[str] = []
        for policy in wanted.trainers:
            if policy not in trainers:
                of = f" of policy '{policy}'" if policy else ""
                prefix = trainer_name(policy).removesuffix("0")
                missing.append(self._explain(f"the trainer{of}", prefix))
        if envs < wanted.envs:
            missing.append(self._explain(f"env ({envs} of {wanted.envs} serve)", "env-"))
        for pool in rollout_pools(self._job.spec):
            serving, count = num_serving(pool, rollouts), wanted.rollouts[pool.name]
            if serving < count:
                words = f"{pool} ({serving} of {count} serve)"
                missing.append(self._explain(words, f"rollout-{pool.name}-"))
        return missing

    async def _reconcile(self, launcher: Launcher) -> list[ComponentStatus]:
        """The statuses; none while the launcher is unavailable: the processes run on without it."""
        try:
            return await launcher.reconcile(self._job.job_id, self._desired)
        except TroupeError as error:
            if not error.retryable:
                raise
            _log.warning("launcher.away", job_id=self._job.job_id, error=error.message)
            return []

    def _explain(self, what: str, prefix: str) -> str:
        details = [
            f"{s.name} is {s.state}"
            + (f" ({s.condition})" if s.condition else "")
            + (f": {s.detail}" if s.detail else "")
            for s in self._statuses.values()
            if s.name.startswith(prefix)
        ]
        return f"{what} [{'; '.join(details)}]" if details else what

    async def _look_at(self, status: ComponentStatus) -> None:
        before = self._statuses.get(status.name)
        self._statuses[status.name] = status
        if status.state == "failed":
            code = "unknown" if status.exit_code is None else status.exit_code
            why = status.condition or f"exit status {code}"
            raise JobFailedError(
                f"component {status.name} cannot run ({why}): "
                f"{plain_lines(status.detail) or 'it wrote nothing'}"
            )
        if status.condition and (before is None or before.condition != status.condition):
            await self._emit_condition(status)
        reported = before.restarts if before is not None and before.state == "restarting" else -1
        if status.state == "restarting" and status.restarts != reported:
            names = [replica_id(self._job.job_id, status.name)]
            await self._members.remove(names, reason="its process ended")
            data = {
                "name": status.name,
                "exit_code": status.exit_code,
                "restarts": status.restarts + 1,
                "detail": status.detail[-2000:],
            }
            which = f"{status.name}:{status.launch_id}:{status.restarts + 1}"
            event_id = f"{self._job.life}:component.restarted:{which}"
            await self._events.emit("component.restarted", data, event_id=event_id)

    def _look_at_holds(self, statuses: Sequence[ComponentStatus]) -> None:
        """Note what waits for a queue or an image; raises JobFailedError when it does for too long.

        Nothing is noted while the launcher is away.
        """
        now = time.time()
        halting = [status for status in statuses if status.state not in ("running", "exited")]
        if halting and all(s.condition in (QUEUED, PULLING) for s in halting):
            self.held_at = now
        for hold in self._holds if statuses else ():
            held = [status for status in halting if status.condition == hold.condition]
            hold.since = (hold.since or now) if held else 0.0
            if held and hold.patience.left_s(hold.since) <= 0:
                names = ", ".join(status.name for status in held)
                raise JobFailedError(
                    f"{names} waited with the condition {hold.condition} for longer than "
                    f"{hold.limit}: {held[0].detail}. {hold.advice}, or raise the limit, and "
                    "resume the job"
                )

    async def _emit_condition(self, status: ComponentStatus) -> None:
        """Report what keeps a component from running, when that changes."""
        _log.info(
            "component.condition",
            job_id=self._job.job_id,
            name=status.name,
            condition=status.condition,
        )
        data = {
            "name": status.name,
            "state": status.state,
            "condition": status.condition,
            "detail": status.detail[-2000:],
        }
        await self._events.emit("component.condition", data)
