"""Which servers a task may name: the services' network is private.

``TROUPE_OPENENV_HOSTS`` lists them; what ``troupe.runtime.hosts`` forbids is refused always.
"""

from fnmatch import fnmatchcase

from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import InvalidArgumentError
from troupe.runtime.hosts import check_addresses, check_literal, host_of


class OpenEnvSettings(BaseSettings):
    """``TROUPE_OPENENV_*``."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_OPENENV_", extra="ignore", use_attribute_docstrings=True
    )

    hosts: str = "*"
    """Hosts that specs may name, comma-separated, with * for any part: ``*.envs.example``."""


def check_host(url: str) -> str:
    """The host of ``url`` if a spec may name it; asks no name server.

    Raises:
        InvalidArgumentError: the setting leaves it out, or it is a metadata server's.
    """
    host = host_of(url)
    allowed = [part.strip().lower() for part in OpenEnvSettings().hosts.split(",")]
    if not host or not any(fnmatchcase(host, pattern) for pattern in allowed if pattern):
        raise InvalidArgumentError(
            f"this installation lets no task talk to {host or url!r}; ask its operator to add it "
            "to TROUPE_OPENENV_HOSTS",
            pointer="/url",
        )
    check_literal(host)
    return host


def check_reached(url: str) -> None:
    """``check_host``, and that no address behind the name is forbidden. Asks the name server.

    Raises:
        UnavailableError: the name can't be resolved now.
    """
    check_host(url)
    check_addresses(url)
