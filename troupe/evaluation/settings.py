"""Address and key of an OpenAI-compatible server: ``TROUPE_OPENAI_*``."""

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class OpenAISettings(BaseSettings):
    """Settings of ``--policy openai:MODEL`` and ``--policy URL#MODEL``; hides the key."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_OPENAI_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    base_url: str = ""
    """Server for ``openai:MODEL``, such as http://127.0.0.1:8000/v1."""
    api_key: SecretStr = SecretStr("")
    """Sent as a bearer token; empty sends none."""
