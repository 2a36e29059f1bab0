"""How long the protocol is explored (TROUPE_PROTOCOL_*)."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class ProtocolSettings(BaseSettings):
    """CI takes the small worlds; ``make chaos`` takes all of them."""

    model_config = SettingsConfigDict(env_prefix="TROUPE_PROTOCOL_", extra="ignore")

    full: bool = False
    """Explore the large worlds too: minutes, and some gigabytes."""
    examples: int = 8
    """Random histories of the real ledger and the real intake, each."""
