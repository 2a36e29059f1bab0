"""The platform of one machine: an embedded Valkey and the router, kept alive by a supervisor.

Owns the state folder (``runs/.troupe``), the order of starting and stopping, and the checks before
a start. Never manages jobs: the router launches their processes, ``stop_all`` only ends them.
"""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from troupe.cli.checks import check_folder, check_ports, check_redis, free_ports
from troupe.cli.platform_record import (
    PlatformConfig,
    locked,
    mark_stopping,
    record_of,
    recorded,
    running,
    supervisor_of,
)
from troupe.cli.settings import CliSettings
from troupe.errors import UnavailableError
from troupe.runtime.launch.local import LocalLauncher
from troupe.runtime.launch.processes import ProcessId, look, signal_group
from troupe.runtime.launch.records import ProcRecord, load_records, plain_lines
from troupe.runtime.streams import embedded

OWNER = "platform"
_POLL_S = 0.1


def up(settings: CliSettings) -> tuple[PlatformConfig, bool]:
    """The running platform, and whether this call started it.

    Waits for a platform that is stopping, then starts a new one.

    Raises:
        InvalidArgumentError: a port is taken, or the runs folder can't be written.
        UnavailableError: Redis does not answer, or the platform did not come up in time.
    """
    check_folder(settings.runs_dir)
    config_up = _settled(settings)
    if config_up is not None:
        return config_up, False
    _sweep(settings)
    if settings.ports != "auto":
        return _started(settings)
    with free_ports(settings) as found:
        return _started(found)


def _started(settings: CliSettings) -> tuple[PlatformConfig, bool]:
    """A new platform, or the one that another call has started in this folder meanwhile."""
    config = PlatformConfig.of(settings)
    check_ports(settings)
    if config.is_redis_embedded:
        embedded.find_server()
    else:
        _to_its_end(check_redis(config.redis_url))
    supervisor = _start_supervisor(config)
    try:
        if not _wait_until_up(config, settings.start_timeout_s, supervisor):
            other = _settled(settings)
            if other is not None:
                return other, False
            raise UnavailableError(
                f"The supervisor ended with status {supervisor.poll()}: "
                f"{_last_lines(config.state_dir / 'supervisor.log')}"
            )
    except BaseException:
        _end(supervisor, _stop_timeout_s(config))
        _sweep(settings)
        raise
    return config, True


def down(settings: CliSettings) -> bool:
    """End supervisor, platform and all job processes; False when nothing ran."""
    config = recorded(settings.runs_dir)
    was_alive = config is not None and look(supervisor_of(config)).is_alive
    if config is not None and was_alive:
        mark_stopping(config)
        signal_group(supervisor_of(config), signal.SIGTERM)
        if not _until_dead(supervisor_of(config), _stop_timeout_s(config)):
            signal_group(supervisor_of(config), signal.SIGKILL)
            _until_dead(supervisor_of(config), 5.0)
    return _sweep(settings) or was_alive


def _sweep(settings: CliSettings) -> bool:
    """End what a dead supervisor left, with or without its record; True when something ran.

    Does nothing when another supervisor has started meanwhile: it owns what runs.
    """
    config = recorded(settings.runs_dir) or PlatformConfig.of(settings)
    if not config.state_dir.is_dir():
        return False

    def is_taken() -> bool:
        return running(config.runs_dir) is not None

    with locked(config.state_dir, timeout_s=_stop_timeout_s(config), unless=is_taken) as is_held:
        if not is_held:
            return False
        records = [record for group in processes(config.runs_dir).values() for record in group]
        is_left = any(is_alive(record) for record in records)
        if records:
            _to_its_end(stop_all(config))
        record_of(config.state_dir).unlink(missing_ok=True)
    return is_left


def _to_its_end(work: Coroutine[Any, Any, object]) -> None:
    """Run ``work`` on a thread of its own: the caller's may run an event loop, as a notebook's."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(asyncio.run, work).result()


async def stop_all(config: PlatformConfig) -> None:
    """End the router first (it would restart jobs), then the jobs' processes, Redis last."""
    platform = LocalLauncher(config.state_dir, grace_s=config.grace_s)
    if load_records(config.state_dir / OWNER / "procs"):
        await platform.reconcile(OWNER, config.redis())
    jobs = LocalLauncher(config.runs_dir, grace_s=config.grace_s)
    owners = job_owners(config.runs_dir)
    await asyncio.gather(*(jobs.stop(owner, grace_s=config.grace_s) for owner in owners))
    await platform.stop(OWNER, grace_s=config.grace_s)


def job_owners(runs_dir: Path) -> list[str]:
    """The jobs that have process records."""
    owners = {path.parent.parent.name for path in runs_dir.glob("*/procs/*.json")}
    return sorted(name for name in owners if not name.startswith("."))


def processes(runs_dir: Path) -> dict[str, list[ProcRecord]]:
    """Records of the platform's and every job's processes, by owner."""
    state_dir = runs_dir / ".troupe"
    owners = {OWNER: load_records(state_dir / OWNER / "procs")}
    return owners | {name: load_records(runs_dir / name / "procs") for name in job_owners(runs_dir)}


def is_alive(record: ProcRecord) -> bool:
    """Whether the recorded process runs."""
    return record.pid is not None and look(ProcessId(record.pid, record.ticks)).is_alive


def _start_supervisor(config: PlatformConfig) -> "subprocess.Popen[bytes]":
    config.state_dir.mkdir(parents=True, exist_ok=True)
    log = config.state_dir / "supervisor.log"
    with log.open("ab") as sink:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "troupe.cli.supervisor", str(config.runs_dir)],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert supervisor.stdin is not None
    # Not among the arguments: everybody on the machine sees those, and the Redis URL may hold a
    # password.
    with suppress(BrokenPipeError), supervisor.stdin as stdin:
        stdin.write(config.model_dump_json().encode())
    # A notebook outlives its platform: somebody must take the exit status of the supervisor.
    threading.Thread(target=supervisor.wait, daemon=True).start()
    return supervisor


def _end(supervisor: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    supervisor.terminate()
    try:
        supervisor.wait(timeout_s)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait(5.0)


def _settled(settings: CliSettings) -> PlatformConfig | None:
    """The platform that is up, or None; waits for one that is starting or stopping."""
    while (config := running(settings.runs_dir)) is not None:
        if config.is_stopping:
            limit_s = _stop_timeout_s(config)
            if not _until_dead(supervisor_of(config), limit_s):
                raise UnavailableError(
                    f"The earlier platform in {config.runs_dir} is still being stopped after "
                    f"{limit_s:.0f} s (supervisor pid {config.pid}); see "
                    f"{config.state_dir / 'supervisor.log'}, or end it with `troupe down`."
                )
        elif _wait_until_up(config, settings.start_timeout_s):
            return config
    return None


def _wait_until_up(
    config: PlatformConfig, timeout_s: float, child: "subprocess.Popen[bytes] | None" = None
) -> bool:
    """True when the router answers; False when the supervisor ended or is ending.

    Raises:
        UnavailableError: a process of the platform can't run, or ``timeout_s`` is over.
    """
    deadline = time.monotonic() + timeout_s
    with config.client() as client:
        while True:
            if failed := _failures(config, "failed"):
                raise UnavailableError(f"The platform did not start: {failed}")
            record = running(config.runs_dir)
            is_kept = record is not None and record.pid == (child.pid if child else config.pid)
            is_coming = child is not None and child.poll() is None
            if (record is not None and record.is_stopping) or not (is_kept or is_coming):
                return False
            if is_kept and client.is_up():
                return True
            if time.monotonic() > deadline:
                trouble = _failures(config, "restarting")
                raise UnavailableError(
                    f"The router did not answer at {config.rest_url} within {timeout_s:.0f} s"
                    f"{': ' + trouble if trouble else ''}; see {config.state_dir / OWNER / 'logs'}"
                    ", or give it more time with TROUPE_START_TIMEOUT_S."
                )
            time.sleep(_POLL_S)


def _failures(config: PlatformConfig, state: str) -> str:
    records = load_records(config.state_dir / OWNER / "procs")
    return "; ".join(
        f"{r.name} ended with status {r.exit_code} (log: {r.log}): {plain_lines(r.detail).strip()}"
        for r in records
        if r.state == state
    )


def _last_lines(path: Path) -> str:
    try:
        return " / ".join(path.read_text("utf-8", errors="replace").strip().splitlines()[-5:])
    except OSError:
        return "(no log)"


def _until_dead(process: ProcessId, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while look(process).is_alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _stop_timeout_s(config: PlatformConfig) -> float:
    """Seconds to stop everything: router, jobs and Redis each have a grace period."""
    return 3 * config.grace_s + 10
