"""The certificate of the REST port, read again when its files change.

Owns the polling of the files. A pair that does not fit (a rotation that is half done) is not used.
"""

import asyncio
import ssl
from pathlib import Path

from troupe.errors import InvalidArgumentError
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.tls.files import Stamp, stamp_of

_log = get_logger(__name__)
_LOOK_S = 1.0


class RestCertificate:
    """Certificate (chain) and key; the connections to come use the newest that fit together.

    Raises:
        InvalidArgumentError: a file is missing, or the key is another certificate's.
    """

    def __init__(self, certificate: Path, key: Path, prefix: str = "TROUPE_ROUTER_") -> None:
        """``prefix``: of the variables that name the files."""
        self._paths = (certificate, key)
        self._seen: Stamp = ()
        try:
            self._seen = stamp_of(self._paths)
            _check(*self._paths)
        except OSError as error:
            raise InvalidArgumentError(
                f"{prefix}TLS_CERTIFICATE ({certificate}) and {prefix}TLS_KEY ({key}) can't be "
                f"used ({error}): give PEM files of which the key belongs to the certificate."
            ) from error

    async def follow(self, context: ssl.SSLContext) -> None:
        """Give ``context`` each new pair, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look(context)

    def look(self, context: ssl.SSLContext) -> None:
        """Give ``context`` the pair when the files changed and fit."""
        try:
            stamp = stamp_of(self._paths)
            if stamp == self._seen:
                return
            self._seen = stamp
            _check(*self._paths)
            context.load_cert_chain(*self._paths)
        except OSError as error:
            _log.warning("rest_certificate.not_reloaded", error=str(error))
        else:
            _log.info("rest_certificate.reloaded")


def _check(certificate: Path, key: Path) -> None:
    """Raise OSError (ssl.SSLError is one) for a pair that can't be used.

    Tried on a context of its own: one that serves must never hold half a pair. Never asks the
    terminal for a password.
    """
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
