"""Where the router runs: addresses, limits and paths (TROUPE_ROUTER_*)."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from troupe.serving import ServingSettings


class RouterSettings(ServingSettings):
    """Settings of one router process."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_ROUTER_", extra="forbid", use_attribute_docstrings=True
    )

    grpc_address: str = "127.0.0.1:8481"
    """host:port of RouterService."""
    rest_address: str = "127.0.0.1:8480"
    """host:port of the REST API."""
    redis_url: str = "redis://127.0.0.1:6390/0"
    """The Redis or Valkey that holds streams and records."""
    runs_dir: Path = Path("runs")
    """Folder of the run folders."""
    launcher: Literal["local", "none"] = "local"
    """local: start a job's processes on this machine; none: they come by themselves."""
    env_replicas: int = Field(default=1, ge=1, le=64)
    """Env processes that the local launcher starts for a job."""
    process_threads: int = Field(default=1, ge=1)
    """OMP_NUM_THREADS of the processes that the local launcher starts."""
    replica_ttl_s: float = Field(default=5.0, gt=0.0)
    """A replica that is silent for so long is evicted."""
    claim_idle_s: float = Field(default=5.0, gt=0.0)
    """A ticket whose worker is silent for so long is played by another."""
    lease_ttl_s: float = Field(default=5.0, gt=0.0)
    """A job whose router is silent for so long is conducted by another."""
    reconcile_s: float = Field(default=0.25, gt=0.0)
    """Time between two looks at a job's processes."""
    record_fraction: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the training episodes that episodes.jsonl keeps; evaluation is kept whole."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024)
    """Largest body of a REST request."""
    commit: str = ""
    """Version-control commit for summary.json; asked of git when empty."""
