"""The address that HTTP listens on: bound early, and refused where it would let strangers in."""

import socket
from pathlib import Path
from typing import Any, Protocol

from troupe.errors import InvalidArgumentError
from troupe.runtime.hosts import is_loopback


class DoorSettings(Protocol):
    """What the settings of a process with an HTTP port have in common."""

    rest_address: str
    api_keys: Path | None
    allow_anonymous: bool
    tls_certificate: Path | None
    tls_key: Path | None

    @property
    def model_config(self) -> Any:
        """The settings' own configuration, with the prefix of their variables."""
        ...


def check_listen_address(settings: DoorSettings) -> None:
    """Raise InvalidArgumentError for a public address without keys."""
    prefix = settings.model_config["env_prefix"]
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidArgumentError(
            f"{prefix}TLS_CERTIFICATE and {prefix}TLS_KEY belong together; set both or neither"
        )
    host = settings.rest_address.rpartition(":")[0]
    if settings.api_keys is None and not settings.allow_anonymous and not is_loopback(host):
        raise InvalidArgumentError(
            f"REST would listen on {settings.rest_address}, which others reach, without "
            f"keys. Set {prefix}API_KEYS to a file of keys (`troupe keys add NAME`), or "
            f"listen on 127.0.0.1, or set {prefix}ALLOW_ANONYMOUS=true where something else "
            "controls access to it."
        )


def bind(address: str, setting: str) -> socket.socket:
    """A listening socket; raises InvalidArgumentError when the address can't be had.

    ``setting`` names the variable that chooses the address.
    """
    host, _, port = address.rpartition(":")
    try:
        listener = socket.create_server((host or "127.0.0.1", int(port)), backlog=256)
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the REST port {address} cannot be opened ({error}); another router or program may "
            f"use it: stop that, or set {setting} to another host:port"
        ) from error
    # asyncio sets it on sockets of its own alone; without it each event of a stream waits 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener
