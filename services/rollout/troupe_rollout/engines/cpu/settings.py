"""Settings of the `cpu` engine. They share the service's prefix: TROUPE_ROLLOUT_*."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class CpuEngineSettings(BaseSettings):
    """Where and how wide the engine computes. None of it changes what is sampled."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_ROLLOUT_",
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    device: str = "cpu"
    """torch device, "cpu" or "cuda"."""
    torch_threads: int = Field(default=1, ge=1, le=256)
    """Threads of one torch operation. More than 1 gives up bit-equal results across batches."""
    max_rows: int = Field(default=256, ge=1, le=4096)
    """Candidates of one policy version that are decoded together."""
    max_in_flight: int = Field(default=4096, ge=1)
    """Candidates queued or decoded; beyond it requests are refused as overloaded."""
    max_prefill_tokens: int = Field(default=1024, ge=32)
    """Prompt tokens (padding included) of one prefill pass, unless one prompt is longer."""
    max_kv_mib: int = Field(default=4096, ge=1)
    """Key/value memory of one policy version, MiB, and one layer's more while it grows. Memory is
    taken for eight candidates at a time, also where a request alone is larger than this."""
    max_versions: int = Field(default=3, ge=2, le=64)
    """Versions of one policy held at once, with the one that is being staged: the oldest goes, and
    never the active one. One that still answers requests stays in memory until they end."""
