"""Redis connections over TLS, each opened with the newest certificate."""

from collections.abc import Mapping
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, SSLConnection

from troupe.runtime.tls.files import TlsFiles


class RotatingConnection(SSLConnection):
    """A connection that asks ``tls`` for its context whenever it connects."""

    def __init__(self, *, tls: TlsFiles, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._tls = tls

    def _connection_arguments(self) -> Mapping[str, Any]:
        # The parent's own context, which it would keep for good, is left out.
        arguments: Any = Connection._connection_arguments(self)  # pyright: ignore[reportPrivateUsage]
        return {**arguments, "ssl": self._tls.client_context()}


def present_certificate(pool: BlockingConnectionPool, tls: TlsFiles | None) -> None:
    """Make a pool of a rediss:// URL use this process's certificate.

    A URL that names its own authorities (``?ssl_ca_certs=``) is left alone, and so is redis://.
    """
    kind: Any = pool.connection_class
    options: Any = pool.connection_kwargs
    if tls is None or kind is not SSLConnection or "ssl_ca_certs" in options:
        return
    pool.connection_class = RotatingConnection
    options["tls"] = tls
