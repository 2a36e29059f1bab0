"""Settings of a player process: addresses and limits (TROUPE_PLAY_*)."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from troupe.runtime.serving import ServingSettings, replica_name
from troupe_router.play.job_player import PlayOptions


class PlaySettings(ServingSettings):
    """``TROUPE_PLAY_*``. Its gRPC server answers health checks alone."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_PLAY_", extra="ignore", use_attribute_docstrings=True
    )

    max_request_bytes: int = Field(default=1 << 20, ge=1024)
    """Largest gRPC message that is received; health checks are small."""
    redis_url: str = "redis://127.0.0.1:6390/0"
    """The Redis or Valkey of the routers."""
    claim_idle_s: float = Field(default=5.0, gt=0.0)
    """Silence of a worker after which another plays its tickets."""
    generate_calls: int = Field(default=8192, ge=1)
    """Generate calls of one job that run or wait here; one more is refused."""
    series_linger_s: float = Field(default=120.0, ge=0.0)
    """Time for which an ended job keeps its Prometheus series: several scrapes."""

    def options(self) -> PlayOptions:
        """The options that the players need."""
        return PlayOptions(
            replica_name(self, "play"),
            self.claim_idle_s,
            self.generate_calls,
            self.series_linger_s,
            self.job_id,
        )
