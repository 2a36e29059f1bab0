"""The server's side of gRPC over TLS: every client must present a certificate."""

from typing import Any, cast

import grpc

from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.tls.files import Identity, TlsFiles

_log = get_logger(__name__)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that follow the files: each new connection sees the newest certificate.

    Connections that are open stay open, whatever happens to the files.
    """
    first = files.identity()
    # The library takes None for "as before", which its types leave out.
    fetcher = cast("Any", _Fetcher(files, first.generation))
    return grpc.dynamic_ssl_server_credentials(
        _configuration(first), fetcher, require_client_authentication=True
    )


class _Fetcher:
    """Called by gRPC before each handshake, on a separate thread."""

    def __init__(self, files: TlsFiles, generation: int) -> None:
        self._files = files
        self._generation = generation

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            identity = self._files.identity()
        except Exception as error:  # gRPC ends the process on an error from here
            _log.error("tls.fetch_failed", exc_info=error)
            return None
        if identity.generation == self._generation:
            return None
        self._generation = identity.generation
        return _configuration(identity)


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.cert)], identity.ca)
