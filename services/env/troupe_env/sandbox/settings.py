"""How the env service isolates untrusted programs: ``TROUPE_ENV_SANDBOX*``."""

import os
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Level = Literal["namespaces", "gvisor-pod", "process"]


class Language(BaseModel):
    """A language beside Python: what runs ``file``, in the program's working folder.

    Example: ``{"file": "main.js", "argv": ["/usr/bin/node", "main.js"]}``.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    argv: list[str] = Field(min_length=1)


class SandboxSettings(BaseSettings):
    """``TROUPE_ENV_SANDBOX*``. docs/sandbox.md says what each level guarantees."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_ENV_SANDBOX_", extra="ignore", populate_by_name=True
    )

    level: Level | None = Field(default=None, validation_alias="TROUPE_ENV_SANDBOX")
    """Required isolation. Set: it is probed at start, and the service does not start without it.
    Not set: ``namespaces``, probed when a task first runs a program."""
    workers: int = Field(default=0, ge=0, le=1024)
    """Programs that run at once; 0 is one for each core."""
    max_waiting: int = Field(default=256, ge=0)
    """Programs that wait for a worker; one more is refused with RESOURCE_EXHAUSTED."""
    wait_s: float = Field(default=30.0, gt=0.0)
    """Longest wait for a worker, seconds."""
    runs_per_worker: int = Field(default=10_000, ge=1)
    """Programs after which a worker is replaced by a new one."""
    python: str = ""
    """Interpreter of Python programs; empty: the one that runs the service, without its packages.
    A virtual environment's interpreter brings that environment's packages."""
    preload: list[str] = Field(default_factory=list)
    """Modules that each worker imports once, such as ``["numpy"]``, to save programs the time."""
    shown_paths: list[str] = Field(default_factory=list)
    """Further folders that programs may read, absolute. Put nothing secret there."""
    packages: list[str] = Field(default_factory=lambda: ["pyosys"])
    """Installed packages that programs find as ``/packages/NAME``, though all others are hidden;
    one that is not installed is left out. Each is one folder: its own imports are not shown."""
    languages: dict[str, Language] = Field(default_factory=dict)
    """Languages beside Python, by name."""
    first_uid: int = Field(default=64_000, ge=1)
    """When the service is root: programs of worker i run as the host's user ``first_uid + i``."""
    cgroup: str = ""
    """A cgroup v2 folder that the service may fill; empty: below its own cgroup, where allowed."""

    @property
    def num_workers(self) -> int:
        """Programs that run at once."""
        return self.workers or os.cpu_count() or 1
