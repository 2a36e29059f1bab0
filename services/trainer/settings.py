"""Where the trainer runs: addresses, limits and paths (TROUPE_TRAINER_*)."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from troupe.serving.settings import ServingSettings


class TrainerSettings(ServingSettings):
    """Settings of one trainer process."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_TRAINER_", extra="ignore", use_attribute_docstrings=True
    )

    redis_url: str = "redis://127.0.0.1:6390/0"
    """Redis or Valkey that holds the job's streams."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the models live; auto takes an accelerator if there is one."""
    torch_threads: int = Field(default=1, ge=1, le=1024)
    """Threads of one CPU operation."""
    run_dir: str = ""
    """Folder of the job's artifacts; empty: the one that the router assigns."""
