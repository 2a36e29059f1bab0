"""The platform of one machine: an embedded Valkey and the router, kept alive by a supervisor.

Owns the state folder (``runs/.troupe``), the order of starting and stopping, and the checks
before. Never talks about jobs: the router launches a job's processes, ``stop_all`` only ends them.
"""

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from troupe.cli.settings import HOST, CliSettings
from troupe.clients.rest import RestClient
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.launch.contract import Component
from troupe.launch.local import LocalLauncher
from troupe.launch.processes import ProcessId, identify, look, signal_group
from troupe.launch.records import ProcRecord, load_records
from troupe.streams import embedded
from troupe.streams.redis import connect

OWNER = "platform"
_POLL_S = 0.1


class PlatformConfig(BaseModel):
    """What one platform runs on; written beside its pid so that any command can find it.

    Example: ``PlatformConfig.of(CliSettings())``.
    """

    model_config = ConfigDict(frozen=True)

    runs_dir: Path
    redis_url: str
    is_redis_embedded: bool
    rest_port: int
    grpc_port: int
    admin_port: int
    redis_port: int
    grace_s: float
    pid: int = 0
    ticks: int = 0

    @classmethod
    def of(cls, settings: CliSettings) -> "PlatformConfig":
        """The platform that ``settings`` asks for."""
        return cls(
            runs_dir=settings.runs_dir.absolute(),
            redis_url=settings.redis_url or embedded.url(settings.redis_port),
            is_redis_embedded=not settings.redis_url,
            rest_port=settings.rest_port,
            grpc_port=settings.grpc_port,
            admin_port=settings.admin_port,
            redis_port=settings.redis_port,
            grace_s=settings.grace_s,
        )

    @property
    def state_dir(self) -> Path:
        """Folder of the platform's own state."""
        return self.runs_dir / ".troupe"

    @property
    def rest_url(self) -> str:
        """URL of the router."""
        return f"http://{HOST}:{self.rest_port}"

    def components(self) -> list[Component]:
        """The processes to keep alive, in starting order."""
        return [*self.redis(), self._router()]

    def redis(self) -> list[Component]:
        """The embedded server, when it is ours to run."""
        if not self.is_redis_embedded:
            return []
        return [embedded.component(self.redis_port, self.state_dir / "redis")]

    def _router(self) -> Component:
        env = {
            "TROUPE_ROUTER_REST_ADDRESS": f"{HOST}:{self.rest_port}",
            "TROUPE_ROUTER_GRPC_ADDRESS": f"{HOST}:{self.grpc_port}",
            "TROUPE_ROUTER_ADMIN_ADDRESS": f"{HOST}:{self.admin_port}",
            "TROUPE_ROUTER_REDIS_URL": self.redis_url,
            "TROUPE_ROUTER_RUNS_DIR": str(self.runs_dir),
            "TROUPE_ROUTER_LAUNCHER": "local",
        }
        return Component("router", "services.router", env)


def running(runs_dir: Path) -> PlatformConfig | None:
    """The platform whose supervisor lives, or None."""
    config = recorded(runs_dir)
    if config is None or not look(ProcessId(config.pid, config.ticks)).is_alive:
        return None
    return config


def recorded(runs_dir: Path) -> PlatformConfig | None:
    """The platform that was last started there and not ended in order, alive or not."""
    try:
        text = _record(runs_dir.absolute() / ".troupe").read_text("utf-8")
        return PlatformConfig.model_validate_json(text)
    except (OSError, ValidationError):
        return None


def remember(config: PlatformConfig, *, pid: int) -> None:
    """Record that process ``pid`` supervises the platform."""
    identity = identify(pid)
    ticks = identity.ticks if identity else 0
    path = _record(config.state_dir)
    temporary = path.with_suffix(".tmp")
    document = config.model_copy(update={"pid": pid, "ticks": ticks})
    temporary.write_text(document.model_dump_json(indent=1), encoding="utf-8")
    temporary.replace(path)


def up(settings: CliSettings) -> tuple[PlatformConfig, bool]:
    """The running platform, and whether this call started it.

    Raises:
        InvalidArgumentError: a port is taken, or the runs folder can't be written.
        UnavailableError: Redis does not answer, or the platform did not come up in time.
    """
    check_folder(settings.runs_dir)
    found = running(settings.runs_dir)
    if found is not None:
        _wait_until_up(found, settings.start_timeout_s)
        return found, False
    down(settings)
    config = PlatformConfig.of(settings)
    check_ports(settings)
    if config.is_redis_embedded:
        embedded.find_server()
    else:
        asyncio.run(_check_redis(config.redis_url))
    supervisor = _start_supervisor(config)
    try:
        _wait_until_up(config, settings.start_timeout_s, supervisor)
    except BaseException:
        supervisor.terminate()
        supervisor.wait(3 * config.grace_s + 10)
        down(settings)
        raise
    return config, True


def down(settings: CliSettings) -> bool:
    """End supervisor, platform and all job processes; False when nothing ran."""
    config = recorded(settings.runs_dir)
    if config is None:
        return False
    supervisor = ProcessId(config.pid, config.ticks)
    was_alive = look(supervisor).is_alive
    signal_group(supervisor, signal.SIGTERM)
    if not _until_dead(supervisor, 3 * config.grace_s + 10):
        signal_group(supervisor, signal.SIGKILL)
        _until_dead(supervisor, 5.0)
    asyncio.run(stop_all(config))
    _record(config.state_dir).unlink(missing_ok=True)
    return was_alive


async def stop_all(config: PlatformConfig) -> None:
    """The router first (it would start jobs again), then the jobs' processes, Redis last."""
    platform = LocalLauncher(config.state_dir, grace_s=config.grace_s)
    if load_records(config.state_dir / OWNER / "procs"):
        await platform.reconcile(OWNER, config.redis())
    jobs = LocalLauncher(config.runs_dir, grace_s=config.grace_s)
    owners = job_owners(config.runs_dir)
    await asyncio.gather(*(jobs.stop(owner, grace_s=config.grace_s) for owner in owners))
    await platform.stop(OWNER, grace_s=config.grace_s)


def job_owners(runs_dir: Path) -> list[str]:
    """Jobs that have process records."""
    found = {path.parent.parent.name for path in runs_dir.glob("*/procs/*.json")}
    return sorted(name for name in found if not name.startswith("."))


def processes(runs_dir: Path) -> dict[str, list[ProcRecord]]:
    """Records of the platform's and every job's processes, by owner."""
    state_dir = runs_dir / ".troupe"
    owners = {OWNER: load_records(state_dir / OWNER / "procs")}
    return owners | {name: load_records(runs_dir / name / "procs") for name in job_owners(runs_dir)}


def check_folder(runs_dir: Path) -> None:
    """Raise InvalidArgumentError unless files can be made in ``runs_dir``."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=runs_dir, prefix=".writable-"):
            pass
    except OSError as error:
        raise InvalidArgumentError(
            f"The runs folder {runs_dir.absolute()} can't be written ({error.strerror}); choose "
            "another with --runs-dir or TROUPE_RUNS_DIR."
        ) from error


def check_ports(settings: CliSettings) -> None:
    """Raise InvalidArgumentError when a port that the platform needs is taken or named twice."""
    ports = settings.ports()
    for name, port in ports.items():
        how = f"--{name}-port or TROUPE_{name.upper()}_PORT"
        twin = next((other for other, p in ports.items() if p == port and other != name), None)
        if twin is not None:
            raise InvalidArgumentError(
                f"Port {port} is given to both '{name}' and '{twin}'; choose another with {how}."
            )
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise InvalidArgumentError(
                    f"Port {port} on {HOST}, which the platform needs ({name}), can't be taken: "
                    f"{error.strerror}. Stop what listens there (`ss -ltnp 'sport = {port}'` names "
                    f"it; `troupe down` ends a platform), or choose another with {how}."
                ) from error


async def _check_redis(url: str) -> None:
    client = await connect(url, connect_for_s=3.0)
    await client.aclose()


def _start_supervisor(config: PlatformConfig) -> "subprocess.Popen[bytes]":
    config.state_dir.mkdir(parents=True, exist_ok=True)
    log = config.state_dir / "supervisor.log"
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "troupe.cli.supervisor", config.model_dump_json()],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_up(
    config: PlatformConfig, timeout_s: float, supervisor: "subprocess.Popen[bytes] | None" = None
) -> None:
    deadline = time.monotonic() + timeout_s
    with RestClient(config.rest_url) as client:
        while not client.is_up():
            failed = _failures(config)
            if failed:
                raise UnavailableError(f"The platform did not start: {failed}")
            if supervisor and supervisor.poll() is not None and not running(config.runs_dir):
                raise UnavailableError(
                    f"The supervisor ended with status {supervisor.returncode}: "
                    f"{_last_lines(config.state_dir / 'supervisor.log')}"
                )
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"The router did not answer at {config.rest_url} within {timeout_s:.0f} s; see "
                    f"{config.state_dir / OWNER / 'logs'}, or give it more time with "
                    "TROUPE_START_TIMEOUT_S."
                )
            time.sleep(_POLL_S)


def _failures(config: PlatformConfig) -> str:
    records = load_records(config.state_dir / OWNER / "procs")
    return "; ".join(
        f"{r.name} failed with status {r.exit_code} (log: {r.log}): {r.detail.strip()}"
        for r in records
        if r.state == "failed"
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


def _record(state_dir: Path) -> Path:
    return state_dir / "supervisor.json"
