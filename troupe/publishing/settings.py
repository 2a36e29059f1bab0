"""Addresses and keys of the places that teams are sent to: ``TROUPE_PUBLISH_*``."""

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class PublishSettings(BaseSettings):
    """Settings of ``troupe publish`` and of fetching a team; hides keys."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_PUBLISH_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    hub_url: str = ""
    """Hub for ``hub:``; empty: huggingface_hub's usual one (``HF_ENDPOINT``)."""
    hub_token: SecretStr = SecretStr("")
    """Token for it; empty: huggingface_hub's usual one (``HF_TOKEN``, ``hf auth login``)."""
    oci_username: str = ""
    """User of the registry for ``oci:``; empty: no login."""
    oci_password: SecretStr = SecretStr("")
    """Password or token of that user."""
    oci_plain_http: bool = False
    """Whether registries are asked without TLS; loopback addresses always are."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Longest silence of a hub or a registry, seconds."""
