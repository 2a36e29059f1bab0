"""Keeps the platform's processes alive until it receives a signal to stop.

Owns the reconcile loop, the orderly stop, and that Redis takes no writes while the disk is full.
Never serves anything itself; when it is killed, the processes stay, and the next ``troupe up`` or
``troupe down`` cleans up after it.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress

from troupe.cli.platform import OWNER, stop_all
from troupe.cli.platform_record import (
    PlatformConfig,
    locked,
    mark_stopping,
    remember,
    running,
)
from troupe.runtime.disk_space import FULL_BYTES, DiskSpace
from troupe.runtime.launch.launcher import EXIT_CONFIGURATION, ComponentStatus
from troupe.runtime.launch.local import LocalLauncher, RestartPolicy
from troupe.runtime.transient import is_transient

_PERIOD_S = 0.5
_RESTARTS = RestartPolicy(steady_s=5.0, counts_steady=False)
"""Jobs depend on Redis and the router: however often they die, they are started again."""
_LOCK_S = 10.0
"""Longest wait for another process that cleans up after an earlier supervisor."""


async def supervise(config: PlatformConfig, stopping: asyncio.Event) -> None:
    """Reconcile until ``stopping`` is set, then end everything in order."""
    launcher = LocalLauncher(config.state_dir, restarts=_RESTARTS, grace_s=config.grace_s)
    disk = DiskSpace(config.state_dir, needed_bytes=FULL_BYTES)
    last_states: dict[str, tuple[str, int]] = {}
    try:
        while not stopping.is_set():
            try:
                desired = config.components(takes_writes=not disk.look())
                for status in await launcher.reconcile(OWNER, desired):
                    _tell(status, last_states)
            except OSError as error:
                if not is_transient(error):
                    raise
                _print(f"the platform is left as it is until this passes: {error}")
            try:
                await asyncio.wait_for(stopping.wait(), _PERIOD_S)
            except TimeoutError:
                continue
    finally:
        with suppress(OSError):
            mark_stopping(config)
        _print("stopping")
        await stop_all(config)
        _print("stopped")


def _tell(status: ComponentStatus, last_states: dict[str, tuple[str, int]]) -> None:
    """Log what changed."""
    state = (status.state, status.restarts)
    if last_states.get(status.name) != state:
        last_states[status.name] = state
        _print(f"{status.name}: {status.state} pid={status.pid} restarts={status.restarts}")
        if status.state in ("failed", "restarting", "waiting"):
            _print(status.detail)


def _print(text: str) -> None:
    """Log a line; one that a full disk refuses is dropped."""
    with suppress(OSError):
        print(text, flush=True)


async def _main(config: PlatformConfig) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stopping.set)
    await supervise(config, stopping)


def main() -> int:
    """Supervise the platform that stdin describes as JSON.

    The runs folder is an argument, by which whoever lists processes knows them apart.
    """
    config = PlatformConfig.model_validate_json(sys.stdin.read())

    def is_taken() -> bool:
        return running(config.runs_dir) is not None

    with locked(config.state_dir, timeout_s=_LOCK_S, unless=is_taken) as is_held:
        if not is_held:
            print(f"another supervisor runs in {config.state_dir}", file=sys.stderr)
            return EXIT_CONFIGURATION
        remember(config, pid=os.getpid())
        asyncio.run(_main(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
