"""Where the rollout service runs and how much it takes on. Engines add their own settings."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from troupe.runtime.serving import ServingSettings


class RolloutSettings(ServingSettings):
    """``TROUPE_ROLLOUT_*``."""

    model_config = SettingsConfigDict(env_prefix="TROUPE_ROLLOUT_", extra="ignore")

    engine: str = "cpu"
    """Registered engine (`troupe.engines` entry point) or `module:attr`."""
    staging_dir: str = ""
    """Folder for incoming weights; empty: the system's temporary folder."""
    max_weights_bytes: int = Field(default=64 * 2**30, ge=1)
    """Largest weight file that is accepted, bytes."""
    max_uploads: int = Field(default=16, ge=1)
    """Weight files received at once; one more is refused with RESOURCE_EXHAUSTED."""
    upload_timeout_s: float = Field(default=900.0, gt=0.0)
    """Longest time to receive and stage one version, whatever deadline the caller set, beside that
    of max_weights_bytes at 25 MB/s, seconds."""
    chunk_timeout_s: float = Field(default=60.0, gt=0.0)
    """Longest silence between two chunks, seconds."""
    weights_url: str = ""
    """Store of published weights, as this replica reaches it: a shared folder, or s3://, gs://,
    az://. Only for a trainer that publishes through a store."""
    weights_options: dict[str, str] = Field(default_factory=dict[str, str])
    """Options of an object store (JSON): endpoint, region, keys; any that obstore knows."""
    push_lease_s: float = Field(default=300.0, gt=0.0)
    """A staged version that is not activated within this time is dropped, seconds."""
    max_candidates: int = Field(default=1024, ge=1)
    """Largest number of candidates of one Generate request."""
    call_timeout_s: float = Field(default=600.0, gt=0.0)
    """Longest time for any other call, whatever deadline the caller set, seconds; a call that may
    load a version has that of max_weights_bytes at 25 MB/s beside it. Completions, and a teacher's
    scores of them, have their caller's deadline, which follows from the job, and this time only
    where there is none."""
