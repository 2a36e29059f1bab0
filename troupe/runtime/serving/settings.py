"""The settings that every service has; each service's Settings class derives from them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServingSettings(BaseSettings):
    """Where a service listens, to which router it reports and how long it drains.

    A subclass sets ``model_config = SettingsConfigDict(env_prefix="TROUPE_<SERVICE>_")``.
    """

    model_config = SettingsConfigDict(extra="ignore")

    grpc_address: str = "127.0.0.1:0"
    """host:port of the gRPC server; port 0 takes a free one."""
    advertise_host: str = ""
    """Host under which others reach this process; empty: the bound host, or the host's name."""
    admin_address: str = "127.0.0.1:0"
    """host:port of /metrics, /livez and /readyz."""
    max_calls: int = Field(default=10_000, ge=1)
    """gRPC calls that run at once, health checks included; one more is refused with
    RESOURCE_EXHAUSTED before a byte of it is read. Above TROUPE_ROUTER_GENERATE_CALLS, so that a
    router's whole queue fits one replica."""
    max_request_bytes: int = Field(default=64 << 20, ge=1024)
    """Largest gRPC message that is received. Rollout and env take chunks of weights and many
    actions at once; the others lower it."""
    grace_s: float = Field(default=10.0, ge=0.0)
    """Time for work in flight to end after SIGTERM, seconds."""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)
    ] = "info"
    """debug, info, warning or error."""
    router: str = "127.0.0.1:8481"
    """host:port of the router's gRPC server."""
    job_id: str = ""
    """Id of the only job to work for; empty: any job."""
    replica_id: str = ""
    """Stable name of this process; empty: derived from the service, the host and the process."""
