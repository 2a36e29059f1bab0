"""Where the env service runs and how much it takes on."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from troupe.runtime.serving import ServingSettings

MIN_THREADS = 4
"""So many threads judge at the least: tasks may wait for servers, and one may hang."""


class EnvSettings(ServingSettings):
    """``TROUPE_ENV_*``."""

    model_config = SettingsConfigDict(env_prefix="TROUPE_ENV_", extra="ignore")

    threads: int = Field(default=0, ge=0, le=1024)
    """Threads that judge actions; 0 is one for each program that the sandbox runs at once, and at
    least 4."""
    max_requests: int = Field(default=1024, ge=1)
    """Requests queued or being judged; one more is refused with RESOURCE_EXHAUSTED."""
    max_environments: int = Field(default=16, ge=1)
    """Constructed task families that are kept; the least recently used is dropped first."""
    max_actions: int = Field(default=1024, ge=1)
    """Largest number of actions in one Step request."""
    actions_per_thread: int = Field(default=16, ge=1)
    """Actions of one request that one thread judges in a row; 1 for a task that runs programs."""
    call_timeout_s: float = Field(default=60.0, gt=0.0)
    """Longest time for one request whose caller sets no deadline, and for a bundle's process to
    start. A caller's own deadline, which follows from the job's `limits.env_timeout_s`, is kept as
    it is, shorter or longer."""
    max_bundles: int = Field(default=4, ge=1, le=64)
    """Bundles (code that jobs bring along) with a process here; the one that was called longest ago
    makes room."""
    bundle_memory_bytes: int = Field(default=2 << 30, ge=64 << 20)
    """Memory of one bundle's process (RLIMIT_DATA)."""
    bundle_confinement: Literal["required", "preferred"] = "required"
    """required: a bundle runs only where the kernel confines its process (Landlock and seccomp);
    preferred: elsewhere too, with this service's own rights. For machines of trusted users."""
    hung_threads_s: float = Field(default=120.0, gt=0.0)
    """A process whose threads all judge past their requests' deadlines for this long ends and is
    started again, because Python can't end a thread. ``troupe_env_hung_threads`` counts them."""

    def with_threads_for(self, num_programs: int) -> "EnvSettings":
        """These settings with a number of ``threads``: for ``num_programs`` that run at once."""
        threads = self.threads or max(MIN_THREADS, num_programs)
        return self.model_copy(update={"threads": threads})
