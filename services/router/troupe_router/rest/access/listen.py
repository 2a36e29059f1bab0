"""The address that REST listens on: bound early, and refused where it would let strangers in."""

import socket

from troupe.errors import InvalidArgumentError
from troupe.runtime.hosts import is_loopback
from troupe_router.settings import RouterSettings


def check_listen_address(settings: RouterSettings) -> None:
    """Raise InvalidArgumentError for a public address without keys."""
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidArgumentError(
            "TROUPE_ROUTER_TLS_CERTIFICATE and TROUPE_ROUTER_TLS_KEY belong together; set both or "
            "neither"
        )
    host = settings.rest_address.rpartition(":")[0]
    if settings.api_keys is None and not settings.allow_anonymous and not is_loopback(host):
        raise InvalidArgumentError(
            f"REST would listen on {settings.rest_address}, which others reach, without "
            "keys. Set TROUPE_ROUTER_API_KEYS to a file of keys (`troupe keys add NAME`), or "
            "listen on 127.0.0.1, or set TROUPE_ROUTER_ALLOW_ANONYMOUS=true where something else "
            "controls access to it."
        )


def bind(address: str) -> socket.socket:
    """A listening socket; raises InvalidArgumentError when the address can't be had."""
    host, _, port = address.rpartition(":")
    try:
        listener = socket.create_server((host or "127.0.0.1", int(port)), backlog=256)
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the REST port {address} cannot be opened ({error}); another router or program may "
            "use it: stop that, or set TROUPE_ROUTER_REST_ADDRESS to another host:port"
        ) from error
    listener.setblocking(False)
    return listener
