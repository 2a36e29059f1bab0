"""Parses host:port settings, and binds a gRPC server to one with a clear error."""

import socket

import grpc.aio

from troupe.errors import InvalidArgumentError
from troupe.runtime.tls import TlsFiles
from troupe.runtime.tls.server import server_credentials


def split_address(address: str, setting: str) -> tuple[str, int]:
    """Host and port of "host:port".

    Raises:
        InvalidArgumentError: it is not of that form; ``setting`` is named.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidArgumentError(
            f"The setting {setting} is {address!r}, which is not host:port; "
            "give for example 127.0.0.1:8481."
        )
    return host.strip("[]"), int(port)


def bind_grpc(server: grpc.aio.Server, address: str, tls: TlsFiles | None = None) -> int:
    """Bind ``address`` (host:port) and return the port; with ``tls``, for TLS clients alone.

    Raises:
        InvalidArgumentError: ``address`` is not host:port, the port is in use, or the host is not
            this machine's.
    """
    host, port = split_address(address, "grpc_address")
    try:
        _probe(host, port)
        if tls is not None:
            return server.add_secure_port(address, server_credentials(tls))
        return server.add_insecure_port(address)
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(
            f"The gRPC server can't listen on {address} ({reason}). Stop what listens there, or "
            "set the grpc_address setting to another host:port."
        ) from error


def reachable_host(host: str) -> str:
    """``host``, or this machine's name when ``host`` means every interface."""
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host


def _probe(host: str, port: int) -> None:
    """Fail as a bind would, with the system's message instead of the gRPC core's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
