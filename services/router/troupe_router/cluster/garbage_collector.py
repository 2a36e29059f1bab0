"""Removes the objects of ended jobs: a router may die between a job's end and its clean-up.

Only the leading router sweeps. Owns no object: the launcher stops what a sweep selects.
Never touches an owner whose job may still run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection

from redis.exceptions import RedisError

from troupe.errors import TroupeError
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.cluster.launcher import KubernetesLauncher
from troupe_router.cluster.leader import Leader

_log = get_logger(__name__)


class GarbageCollector:
    """``unfinished`` names the jobs that a router conducts or will conduct.

    ``patience_s``: how long the objects of an owner that it does not name are left alone.
    """

    def __init__(
        self,
        launcher: KubernetesLauncher,
        leader: Leader,
        unfinished: Callable[[], Awaitable[Collection[str]]],
        *,
        patience_s: Callable[[str], float],
        every_s: float = 5.0,
        grace_s: float = 10.0,
    ) -> None:
        self._launcher = launcher
        self._leader = leader
        self._unfinished = unfinished
        self._every_s = every_s
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._idle_since: dict[str, float] = {}

    async def run(self) -> None:
        """Sweep until cancelled; errors of the cluster or Redis only delay it."""
        while True:
            try:
                if await self._leader.lead():
                    await self.sweep()
                else:
                    self._idle_since.clear()
            except (TroupeError, RedisError) as error:
                _log.warning("sweeper.waits", error=str(error))
            await asyncio.sleep(self._every_s)

    async def sweep(self) -> list[str]:
        """One round; the owners whose objects were removed."""
        owners = await self._launcher.owners()
        wanted = set(await self._unfinished())
        now = time.monotonic()
        idle = {owner: self._idle_since.get(owner, now) for owner in owners if owner not in wanted}
        self._idle_since = idle
        removed: list[str] = []
        for owner, since in idle.items():
            # A job's own conductor stops its processes first; this is for when it could not.
            if now - since >= self._patience_s(owner):
                _log.info("sweeper.removes", job_id=owner)
                await self._launcher.stop(owner, grace_s=self._grace_s)
                removed.append(owner)
        return removed
