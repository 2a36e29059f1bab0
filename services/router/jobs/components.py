"""Keeps a job's processes running, and says which of its parts are missing.

Owns the talk with the launcher for one job. Never decides what a failed component means for the
job beyond raising JobFailedError.
"""

import asyncio
from collections import Counter

from services.router.jobs.processes import components, needs, replica_id
from services.router.jobs.record import JobRecord
from services.router.membership import MemberStore
from services.router.settings import RouterSettings
from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.errors import JobFailedError
from troupe.launch.contract import ComponentStatus, Launcher
from troupe.launch.records import said
from troupe.streams.events import EventLog


class JobComponents:
    """The processes of one job. ``launcher`` None: they come and go by themselves."""

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

    async def keep(self) -> None:
        """Reconcile until cancelled; raises JobFailedError when a component cannot run."""
        while self._launcher is not None:
            for status in await self._launcher.reconcile(self._job.job_id, self._desired):
                await self._look_at(status)
            await asyncio.sleep(self._settings.reconcile_s)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """End the job's processes."""
        if self._launcher is not None:
            await self._launcher.stop(self._job.job_id, grace_s=self._settings.grace_s * 0.6)
            names = [replica_id(self._job.job_id, c.name) for c in self._desired]
            await self._members.remove(names, reason="its process was stopped")

    async def missing(self) -> list[str]:
        """What does not serve yet, in words with the reason that is known."""
        wanted = needs(self._job.spec, self._settings)
        trainers = envs = 0
        rollouts: Counter[str] = Counter()
        for member in await self._members.of_job(self._job.job_id):
            replica = member.replica
            if not replica.is_serving and replica.kind != ReplicaKind.REPLICA_KIND_TRAINER:
                continue
            if replica.kind == ReplicaKind.REPLICA_KIND_TRAINER:
                trainers += 1
            elif replica.kind == ReplicaKind.REPLICA_KIND_ENV:
                envs += 1
            else:
                rollouts.update(member.policies)
        found: list[str] = []
        if trainers < wanted.trainers:
            found.append(self._explain("the trainer", "trainer-"))
        if envs < wanted.envs:
            found.append(self._explain(f"env ({envs} of {wanted.envs} serve)", "env-"))
        for policy, count in wanted.rollouts.items():
            if rollouts[policy] < count:
                words = f"rollout of policy '{policy}' ({rollouts[policy]} of {count} serve)"
                found.append(self._explain(words, f"rollout-{policy}-"))
        return found

    def _explain(self, what: str, prefix: str) -> str:
        details = [
            f"{s.name} is {s.state}" + (f": {s.detail}" if s.detail else "")
            for s in self._statuses.values()
            if s.name.startswith(prefix)
        ]
        return f"{what} [{'; '.join(details)}]" if details else what

    async def _look_at(self, status: ComponentStatus) -> None:
        before = self._statuses.get(status.name)
        self._statuses[status.name] = status
        if status.state == "failed":
            code = "unknown" if status.exit_code is None else status.exit_code
            raise JobFailedError(
                f"component {status.name} cannot run (exit status {code}): "
                f"{said(status.detail) or 'it said nothing'}"
            )
        if status.state == "restarting" and (before is None or before.state != "restarting"):
            names = [replica_id(self._job.job_id, status.name)]
            await self._members.remove(names, reason="its process ended")
            data = {
                "name": status.name,
                "exit_code": status.exit_code,
                "restarts": status.restarts + 1,
                "detail": status.detail[-2000:],
            }
            event_id = f"{self._job.life}:component.restarted:{status.name}:{status.restarts + 1}"
            await self._events.emit("component.restarted", data, event_id=event_id)
