"""Plays a few tasks of a spec on an env service with scripted agents, before a job exists.

Owns the env worker that is launched for one dry run, and its end. Never loads the task's code.
"""

import asyncio
import secrets
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ENV
from troupe.clients.env import EnvClient
from troupe.errors import DeadlineError, OverloadedError, UnavailableError
from troupe.runtime.launch.launcher import Component, Launcher
from troupe.spec import JobSpec
from troupe_router.jobs.processes import components, replica_id
from troupe_router.members.store import MemberStore
from troupe_router.settings import RouterSettings

MAX_AT_ONCE = 2
PLAY_S = 120.0
"""Longest time for the episodes, once the worker is there."""
START_S = 600.0
"""Longest time for a worker to be there, whatever the spec allows."""
_LOOK_S = 0.1
_ENV = "env-0"
_OWNER = "dryrun-" + "[0-9a-f]" * 8


def is_dry_run(owner: str) -> bool:
    """Whether ``owner`` of a launched worker is a dry run and no job."""
    return fnmatchcase(owner, _OWNER)


class DryRuns:
    """At most ``MAX_AT_ONCE``; ``router`` is the gRPC address that a worker registers at.

    Without a launcher an env service that is there plays.
    """

    def __init__(
        self, settings: RouterSettings, members: MemberStore, launcher: Launcher | None, router: str
    ) -> None:
        self._settings = settings
        self._members = members
        self._launcher = launcher
        self._router = router
        self._num_running = 0

    async def play(self, spec: JobSpec, num_tasks: int) -> list[dict[str, Any]]:
        """Episodes of ``spec``, as `troupe dryrun --json` prints them.

        Raises:
            OverloadedError: too many dry runs play.
            UnavailableError, DeadlineError: there is no env service in time.
            InvalidArgumentError: the task's code does not fit the spec, or fails.
        """
        if self._num_running >= MAX_AT_ONCE:
            raise OverloadedError(f"{MAX_AT_ONCE} dry runs play already; try again")
        self._num_running += 1
        try:
            async with self._worker(spec) as address:
                task, bundle = spec.task, spec.bundle
                client = EnvClient(
                    address, task.name, task.params, reward=spec.reward, bundle=bundle
                )
                async with client:
                    return await client.dry_run(spec, num_tasks=num_tasks, timeout_s=PLAY_S)
        finally:
            self._num_running -= 1

    async def sweep(self) -> None:
        """End the workers that an earlier life of this router left on this machine."""
        if self._launcher is None:
            return
        for folder in await asyncio.to_thread(self._left_over):
            await self._stop(self._launcher, folder.name)

    def _left_over(self) -> list[Path]:
        folders = self._settings.runs_dir.absolute().glob(_OWNER)
        return [f for f in folders if (f / "procs").is_dir() and not (f / "spec.json").exists()]

    @asynccontextmanager
    async def _worker(self, spec: JobSpec) -> AsyncGenerator[str]:
        """The address of an env service for the block."""
        if self._launcher is None:
            yield await self._standing()
            return
        owner = f"dryrun-{secrets.token_hex(4)}"
        wanted = components(owner, spec, self._settings, router=self._router)
        worker = next(component for component in wanted if component.name == _ENV)
        timeout_s = min(spec.limits.startup_timeout_s, START_S)
        try:
            yield await self._launched(self._launcher, owner, worker, timeout_s)
        finally:
            await asyncio.shield(self._stop(self._launcher, owner))

    async def _standing(self) -> str:
        envs = [m.replica for m in await self._members.all() if m.replica.kind == REPLICA_KIND_ENV]
        free = sorted((e for e in envs if e.is_serving), key=lambda env: env.num_in_flight)
        if not free:
            raise UnavailableError(
                "no env service is up, and this router starts none (TROUPE_ROUTER_LAUNCHER=none); "
                "start one"
            )
        return free[0].address

    async def _launched(
        self, launcher: Launcher, owner: str, worker: Component, timeout_s: float
    ) -> str:
        detail = ""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    [status] = await launcher.reconcile(owner, [worker])
                    detail = status.detail
                    if status.state == "failed":
                        raise UnavailableError(f"the dry run's env service failed: {detail}")
                    member = await self._members.find(replica_id(owner, _ENV))
                    if member is not None and member.replica.is_serving:
                        return member.replica.address
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise DeadlineError(
                f"the dry run's env service was not up in {timeout_s:g} s {detail}"
            ) from error

    async def _stop(self, launcher: Launcher, owner: str) -> None:
        await launcher.stop(owner, grace_s=1.0)
        await self._members.remove([replica_id(owner, _ENV)], reason="its dry run ended")
        # Its processes' records and logs: nobody can ask for them by this name.
        folder = self._settings.runs_dir.absolute() / owner
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
