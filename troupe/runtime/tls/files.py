"""A process's certificate, key and authorities on disk, reloaded when they change.

Owns reading and checking them, and the TLS contexts made from them. A key and a certificate that do
not match (a rotation that is half done) are never used: the last good pair stays.
"""

import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from troupe.errors import InvalidArgumentError
from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)
Stamp = tuple[tuple[int, int, int], ...]
"""What changes with the contents of files."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One generation of the files' contents, as PEM.

    Example: ``Identity(1, b"-----BEGIN ...", b"-----BEGIN ...", b"-----BEGIN ...")``.
    """

    generation: int
    ca: bytes
    cert: bytes
    key: bytes


class TlsFiles:
    """Three files, checked for changes at most every ``reload_s``. Thread-safe."""

    def __init__(self, ca: Path, cert: Path, key: Path, *, reload_s: float = 1.0) -> None:
        self._paths = (ca, cert, key)
        self._reload_s = reload_s
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._refused: Stamp | None = None
        self._stamp, self._identity, self._context = self._read(1)

    def identity(self) -> Identity:
        """The newest contents that match each other."""
        self._look()
        return self._identity

    def client_context(self) -> ssl.SSLContext:
        """For sockets that Python opens: this certificate, and trust in the authorities.

        The system's authorities count as well: a Redis that somebody else runs has a public name.
        """
        self._look()
        return self._context

    def _look(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at < self._reload_s:
                return
            self._looked_at = now
            try:
                stamp = stamp_of(self._paths)
                if stamp in (self._stamp, self._refused):
                    return
                generation = self._read(self._identity.generation + 1)
            except (InvalidArgumentError, OSError) as error:
                self._refused = None
                _log.warning("tls.not_reloaded", error=str(error))
                return
            self._stamp, self._identity, self._context = generation
            _log.info("tls.reloaded", generation=self._identity.generation)

    def _read(self, generation: int) -> tuple[Stamp, Identity, ssl.SSLContext]:
        ca, cert, key = self._paths
        try:
            before = stamp_of(self._paths)
            identity = Identity(generation, *(path.read_bytes() for path in self._paths))
            context = ssl.create_default_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_verify_locations(cafile=ca)
            context.load_cert_chain(cert, key)
            changed = stamp_of(self._paths) != before
        except FileNotFoundError as error:
            raise InvalidArgumentError(
                f"There is no file {error.filename or ca}, which TROUPE_TLS_CA, TROUPE_TLS_CERT or "
                "TROUPE_TLS_KEY names; `python -m troupe.runtime.tls.certificates` makes some."
            ) from error
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgumentError(
                f"The certificate {cert}, its key {key} and the authorities {ca} can't be used "
                f"({error}): give PEM files of which the key belongs to the certificate."
            ) from error
        if changed:
            raise InvalidArgumentError(f"The certificate {cert} changes while it is read.")
        return before, identity, context


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """A value that changes with the files; follows symbolic links, as Kubernetes mounts them."""
    stats = [path.stat() for path in paths]
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)
