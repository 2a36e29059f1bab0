"""Settings of a process's certificate (TROUPE_TLS_*). If none is set, connections are plain."""

from functools import lru_cache
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import InvalidArgumentError
from troupe.runtime.tls.files import TlsFiles


class TlsSettings(BaseSettings):
    """``TROUPE_TLS_*``: all three, or none. One set of files is a process's one identity."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_TLS_", extra="ignore", use_attribute_docstrings=True, frozen=True
    )

    ca: Path | None = None
    """PEM file of the authorities that peers' certificates must come from."""
    cert: Path | None = None
    """PEM certificate (chain) of this process; its DNS names say its role."""
    key: Path | None = None
    """PEM private key of ``cert``."""
    reload_s: float = Field(default=1.0, ge=0.0)
    """Time between two looks at whether the files changed, seconds."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        paths = {"ca": self.ca, "cert": self.cert, "key": self.key}
        missing = [f"TROUPE_TLS_{name.upper()}" for name, path in paths.items() if path is None]
        if 0 < len(missing) < len(paths):
            raise ValueError(
                f"TLS is half configured: {' and '.join(missing)} not set. Set TROUPE_TLS_CA, "
                "TROUPE_TLS_CERT and TROUPE_TLS_KEY, or none of them."
            )
        return self

    def files(self) -> TlsFiles | None:
        """The certificate's files, read once to check that they match; None: TLS is off.

        Raises:
            InvalidArgumentError: a file is missing, or key and certificate are no pair.
        """
        if self.ca is None or self.cert is None or self.key is None:
            return None
        return _opened(self.ca, self.cert, self.key, self.reload_s)


@lru_cache(maxsize=8)
def _opened(ca: Path, cert: Path, key: Path, reload_s: float) -> TlsFiles:
    """One shared instance for all connections of a process."""
    return TlsFiles(ca, cert, key, reload_s=reload_s)


def configured() -> TlsFiles | None:
    """The TLS files that the environment names; None: TLS is off.

    Raises:
        InvalidArgumentError: TLS is half configured, or its files can't be used.
    """
    try:
        settings = TlsSettings()
    except ValidationError as error:
        raise InvalidArgumentError("; ".join(fault["msg"] for fault in error.errors())) from error
    return settings.files()
