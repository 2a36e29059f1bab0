"""Where a served team listens, and what it takes: TROUPE_SERVE_*."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from troupe.runtime.serving import ServingSettings


class ServeSettings(ServingSettings):
    """``TROUPE_SERVE_*``. Its gRPC server answers health checks alone."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_SERVE_", extra="ignore", use_attribute_docstrings=True
    )

    max_request_bytes: int = Field(default=1 << 20, ge=1024)
    """Largest gRPC message that is received; health checks are small."""
    team: Path
    """Run folder of a job that succeeded, or a folder that `troupe publish` wrote."""
    checkpoint: str = ""
    """Of a run folder, the checkpoint that `troupe export` wrote; empty: the job's end."""
    engine: str = "cpu"
    """Engine of the weights: cpu, sglang (TROUPE_ROLLOUT_SGLANG_*) or another `troupe.engines`."""
    rest_address: str = "127.0.0.1:8490"
    """host:port of the endpoint; port 0 takes a free one."""
    api_keys: Path | None = None
    """File of API keys (`troupe keys add`), read again when it changes; none: no keys."""
    allow_anonymous: bool = False
    """Serve without keys on other addresses than loopback; control access by other means."""
    prints_json: bool = False
    """Whether the line on stdout that says where it listens is JSON."""
    hosts: str = ""
    """Host names that an endpoint without keys accepts, comma-separated, with * for any part."""
    rate_per_s: float = Field(default=0.0, ge=0.0)
    """Requests a second of one key, or of one address without keys; 0: no limit."""
    rate_burst: int = Field(default=100, ge=1)
    """Requests that may come at once within that rate."""
    tls_certificate: Path | None = None
    """PEM certificate (chain) of the endpoint; with tls_key it serves https."""
    tls_key: Path | None = None
    """PEM private key of tls_certificate."""
    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    """Largest body of a request."""
    max_running: int = Field(default=32, ge=1)
    """Requests that are answered at once."""
    max_waiting: int = Field(default=256, ge=0)
    """Requests that wait for their turn; one more is refused with 429."""
    max_choices: int = Field(default=16, ge=1, le=256)
    """Largest n of a request to an agent."""
    request_timeout_s: float = Field(default=300.0, gt=0.0)
    """Longest answer to one request, waiting included."""
    keep_alive_s: float = Field(default=2.0, gt=0.0)
    """Time after which a stream without news gets an empty chunk, so that no time-out ends it."""

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names in ``hosts``."""
        return tuple(name.strip() for name in self.hosts.split(",") if name.strip())
