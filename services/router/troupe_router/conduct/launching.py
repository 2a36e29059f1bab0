"""Creates the launcher that the settings ask for, and keeps what it needs running.

The only place that knows both launchers. Never reconciles anything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from troupe.aio import cancel_all
from troupe.errors import TroupeError
from troupe.runtime.launch.launcher import Launcher
from troupe.runtime.launch.local import LocalLauncher
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.conduct.dry_runs import PLAY_S, START_S, is_dry_run
from troupe_router.settings import RouterSettings

_log = get_logger(__name__)
_PATIENCE_S = 60.0


def sweep_patience_s(owner: str) -> float:
    """How long objects in a cluster stay after the last look that found no job for them.

    Only the router that plays a dry run knows of it, and another one sweeps: the worker of a dry
    run stays for as long as one can take.
    """
    return _PATIENCE_S + (START_S + PLAY_S if is_dry_run(owner) else 0.0)


class Launching:
    """A launcher (None: processes come by themselves) and its background work."""

    def __init__(self, settings: RouterSettings, *, holder: str) -> None:
        self._settings = settings
        self._holder = holder
        self._sweeping: asyncio.Task[None] | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []

    async def start(self, unfinished: Callable[[], Awaitable[Collection[str]]]) -> Launcher | None:
        """The launcher; ``unfinished`` names the jobs whose processes must stay.

        Raises InvalidArgumentError when the settings name no cluster.
        """
        settings = self._settings
        if settings.launcher == "local":
            return LocalLauncher(settings.runs_dir, grace_s=settings.grace_s)
        if settings.launcher == "none":
            return None
        # The cluster's client takes half a second to import, and only this launcher needs it.
        from troupe_router.cluster.connect import connect
        from troupe_router.cluster.garbage_collector import GarbageCollector
        from troupe_router.cluster.launcher import KubernetesLauncher
        from troupe_router.cluster.leader import Leader

        api = await connect(kubeconfig=settings.kubeconfig, namespace=settings.namespace)
        launcher = KubernetesLauncher(api, release=settings.release)
        leader = Leader(api, f"{settings.release}-router", self._holder)
        sweeper = GarbageCollector(
            launcher,
            leader,
            unfinished,
            patience_s=sweep_patience_s,
            grace_s=settings.grace_s,
        )
        self._sweeping = asyncio.create_task(sweeper.run(), name="sweeper")
        self._closers = [leader.release, launcher.close]
        return launcher

    async def close(self) -> None:
        """End background work and connections; what runs in a cluster goes on."""
        if self._sweeping is not None:
            await cancel_all(self._sweeping)
        for closing in self._closers:
            try:
                async with asyncio.timeout(5.0):
                    await closing()
            except (TroupeError, TimeoutError) as error:
                _log.warning("launching.close_failed", error=str(error))
