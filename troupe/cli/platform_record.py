"""The record of a runs folder's platform: its configuration, its supervisor and its lock.

Owns ``supervisor.json`` and ``supervisor.lock`` in the state folder. Never starts or stops a
process.
"""

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from troupe.cli.settings import HOST, CliSettings
from troupe.clients.rest import RestClient
from troupe.runtime.launch.launcher import Component
from troupe.runtime.launch.processes import ProcessId, identify, look
from troupe.runtime.launch.records import write_record
from troupe.runtime.streams import embedded

_POLL_S = 0.05


class PlatformConfig(BaseModel):
    """Configuration of one platform, written beside its pid so that any command can find it.

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
    is_https: bool = False
    router_ca: Path | None = None
    pid: int = 0
    ticks: int = 0
    is_stopping: bool = False

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
            is_https=settings.router_tls_certificate is not None,
            router_ca=settings.router_ca.absolute() if settings.router_ca else None,
        )

    @property
    def state_dir(self) -> Path:
        """Folder of the platform's state."""
        return self.runs_dir / ".troupe"

    @property
    def rest_url(self) -> str:
        """URL of the router."""
        return f"{'https' if self.is_https else 'http'}://{HOST}:{self.rest_port}"

    def client(
        self, *, api_key: str = "", timeout_s: float = 20.0, retry_for_s: float = 0.0
    ) -> RestClient:
        """A client of the router."""
        return RestClient(
            self.rest_url,
            api_key=api_key,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            tls_ca=self.router_ca,
        )

    def components(self, *, takes_writes: bool = True) -> list[Component]:
        """The processes to keep alive, in starting order."""
        return [*self.redis(takes_writes=takes_writes), self._router()]

    def redis(self, *, takes_writes: bool = True) -> list[Component]:
        """The embedded server, when this platform runs one."""
        if not self.is_redis_embedded:
            return []
        folder = self.state_dir / "redis"
        return [embedded.component(self.redis_port, folder, takes_writes=takes_writes)]

    def _router(self) -> Component:
        env = {
            "TROUPE_ROUTER_REST_ADDRESS": f"{HOST}:{self.rest_port}",
            "TROUPE_ROUTER_GRPC_ADDRESS": f"{HOST}:{self.grpc_port}",
            "TROUPE_ROUTER_ADMIN_ADDRESS": f"{HOST}:{self.admin_port}",
            "TROUPE_ROUTER_REDIS_URL": self.redis_url,
            "TROUPE_ROUTER_RUNS_DIR": str(self.runs_dir),
            "TROUPE_ROUTER_LAUNCHER": "local",
        }
        return Component("router", "troupe_router", env)


def running(runs_dir: Path) -> PlatformConfig | None:
    """The platform whose supervisor is alive, or None."""
    config = recorded(runs_dir)
    if config is None or not look(supervisor_of(config)).is_alive:
        return None
    return config


def recorded(runs_dir: Path) -> PlatformConfig | None:
    """The platform last started there and not shut down in order, alive or not."""
    try:
        text = record_of(runs_dir.absolute() / ".troupe").read_text("utf-8")
        return PlatformConfig.model_validate_json(text)
    except (OSError, ValidationError):
        return None


def remember(config: PlatformConfig, *, pid: int) -> None:
    """Record that process ``pid`` supervises the platform."""
    identity = identify(pid)
    ticks = identity.ticks if identity else 0
    _write(config.model_copy(update={"pid": pid, "ticks": ticks, "is_stopping": False}))


def mark_stopping(config: PlatformConfig) -> None:
    """Record that the supervisor is ending, so that ``up`` waits for its end."""
    record = recorded(config.runs_dir)
    if record is not None:
        _write(record.model_copy(update={"is_stopping": True}))


def supervisor_of(config: PlatformConfig) -> ProcessId:
    """The supervisor's process."""
    return ProcessId(config.pid, config.ticks)


@contextmanager
def locked(
    state_dir: Path, *, timeout_s: float, unless: Callable[[], bool] = lambda: False
) -> Generator[bool]:
    """Hold the platform's lock inside the block: supervisors and cleanups exclude each other.

    Yields False when another process held it for ``timeout_s``, or ``unless`` became true.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with (state_dir / "supervisor.lock").open("w", encoding="ascii") as file:
        while not (is_held := _try_lock(file.fileno())):
            if unless() or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        yield is_held


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write(config: PlatformConfig) -> None:
    text = config.model_dump_json(indent=1)
    # The Redis URL may hold a password.
    write_record(record_of(config.state_dir), text, short=text, mode=0o600)


def record_of(state_dir: Path) -> Path:
    """Path of the record in a state folder."""
    return state_dir / "supervisor.json"
