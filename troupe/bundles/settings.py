"""What env services do for a bundle beyond running it. Router and env services read it alike."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class BundleSettings(BaseSettings):
    """``TROUPE_BUNDLE_*``."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_BUNDLE_", extra="ignore", use_attribute_docstrings=True
    )

    index: str = ""
    """Package index (PEP 503 URL) that env services install a bundle's requirements.lock from, with
    hashes and wheels alone; empty: bundles with requirements are refused."""
