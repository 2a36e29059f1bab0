"""The command line's settings: ``TROUPE_*`` variables, which flags override.

Owns addresses and folders of this machine. Never says what to train: that is the job spec.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import InvalidArgumentError

HOST = "127.0.0.1"
SERVE_PORT = 8490
"""Where `troupe serve` listens unless it is told otherwise."""
_IN_A_ROW = ("rest_port", "grpc_port", "admin_port", "redis_port")


class CliSettings(BaseSettings):
    """Settings of the ``troupe`` command.

    Example: ``CliSettings(runs_dir=Path("/data/runs"), rest_port=9480)``.
    """

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    rest_url: str = ""
    """URL of the router; empty means the one of ``troupe up``, else http://127.0.0.1:8480."""
    api_key: str = Field(default="", repr=False)
    """API key, for a router that requires one (`troupe keys add`)."""
    rest_ca: Path | None = None
    """Certificate authority (PEM) of a router whose certificate is not public; not set: tls_ca."""
    tls_ca: Path | None = None
    """Certificate authority for connections between services (docs/operations/tls.md)."""
    router_tls_certificate: Path | None = None
    """Certificate of the router that ``troupe up`` starts; with it, that router serves https."""
    runs_dir: Path = Path("runs")
    """Folder of the run folders and of the platform's state (``.troupe``)."""
    cache_dir: Path = Path("~/.cache/troupe")
    """Folder of downloaded files, for ``troupe model fetch``."""
    redis_url: str = ""
    """URL of the Redis server; empty starts an embedded Valkey."""
    rest_port: int = Field(default=8480, ge=1, le=65535)
    """Port of the router's REST API and web page, for ``troupe up``."""
    grpc_port: int = Field(default=8481, ge=1, le=65535)
    """Port of the router's gRPC server, for ``troupe up``."""
    admin_port: int = Field(default=8482, ge=1, le=65535)
    """Port of the router's health and metrics, for ``troupe up``."""
    redis_port: int = Field(default=8479, ge=1, le=65535)
    """Port of the embedded Valkey, for ``troupe up``."""
    port_base: int | None = Field(default=None, ge=1, le=65532)
    """First of four ports in a row for rest, grpc, admin and redis, where they are not set."""
    ports: Literal["fixed", "auto"] = "fixed"
    """fixed: the ports above; auto: these, or the next four in a row that are free."""
    start_timeout_s: float = Field(default=60.0, gt=0)
    """Longest wait of ``troupe up`` for the router's first answer, seconds."""
    grace_s: float = Field(default=15.0, gt=0)
    """Time for a process to end before it is killed, seconds."""

    @property
    def router_ca(self) -> Path | None:
        """The certificate authority to trust; None: the public ones."""
        return self.rest_ca or self.tls_ca

    @property
    def state_dir(self) -> Path:
        """Folder of the platform: its pid record, logs and embedded Redis data."""
        return self.runs_dir / ".troupe"

    @field_validator("runs_dir")
    @classmethod
    def _of_home(cls, folder: Path) -> Path:
        return folder.expanduser()

    @model_validator(mode="before")
    @classmethod
    def _count_from_base(cls, values: Any) -> Any:
        base = values.get("port_base")
        if not str(base).isdigit():
            return values
        named = {name: int(base) + place for place, name in enumerate(_IN_A_ROW)}
        return {**named, **values}

    def needed_ports(self) -> dict[str, int]:
        """Every port that ``troupe up`` takes, by the name of its flag."""
        ports = {"rest": self.rest_port, "grpc": self.grpc_port, "admin": self.admin_port}
        return ports if self.redis_url else {**ports, "redis": self.redis_port}


def settings_from(**flags: Any) -> CliSettings:
    """Settings with the flags that were given (not None); raises InvalidArgumentError."""
    try:
        return CliSettings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        faults = "; ".join(
            f"TROUPE_{'_'.join(str(p) for p in e['loc']).upper()}: {e['msg']} (got {e['input']!r})"
            for e in error.errors()
        )
        raise InvalidArgumentError(
            f"the settings of the command are not valid: {faults}; correct the variable or the flag"
        ) from error
