"""The API keys of this router, reloaded when their file changes.

Owns the polling of the file. A file that breaks while the router runs leaves the old keys in force.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from troupe.clients.rest.errors import UnauthenticatedError
from troupe.clients.rest.keys import ApiKey, digest_of, read_keys
from troupe.clients.rest.models.session import Scope
from troupe.errors import TroupeError
from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``name`` is empty without keys."""

    name: str
    scopes: tuple[Scope, ...]
    rate_per_s: float | None = None
    is_by_cookie: bool = False
    digest: str = ""


ANYBODY = Caller("", ("read", "submit", "admin", "code"))
"""The caller of a router without keys."""


class KeyStore:
    """Keys by digest. ``path`` None: no key is asked for. Raises InvalidArgumentError."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._keys: dict[str, ApiKey] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._looked_at = 0.0
        if path is not None:
            self._load(path)

    @property
    def is_on(self) -> bool:
        """Whether callers need a key."""
        return self._path is not None

    def caller(self, key: str, *, is_by_cookie: bool = False) -> Caller:
        """Who holds ``key``; raises UnauthenticatedError."""
        self._look()
        digest = digest_of(key)
        api_key = self._keys.get(digest)
        if api_key is None or not api_key.is_valid():
            why = "has ended" if api_key else "is not known"
            raise UnauthenticatedError(f"the API key {why}")
        return Caller(api_key.name, api_key.all_scopes, api_key.rate_per_s, is_by_cookie, digest)

    def still_knows(self, caller: Caller) -> bool:
        """Whether the caller's key is in force; what it opened earlier ends with it."""
        if not self.is_on:
            return True
        self._look()
        api_key = self._keys.get(caller.digest)
        return api_key is not None and api_key.is_valid()

    def replica_limits(self) -> dict[str, int]:
        """Most rollout replicas of each owner that has such a limit."""
        self._look()
        return {k.name: k.max_replicas for k in self._keys.values() if k.max_replicas}

    def _look(self) -> None:
        if self._path is None or time.monotonic() - self._looked_at < _LOOK_S:
            return
        self._looked_at = time.monotonic()
        try:
            if _stamp(self._path) != self._stamp:
                self._load(self._path)
                _log.info("api_keys.loaded", path=str(self._path), count=len(self._keys))
        except TroupeError as error:
            _log.error("api_keys.not_loaded", path=str(self._path), error=str(error))

    def _load(self, path: Path) -> None:
        self._looked_at = time.monotonic()
        # Before the file is read: a change while it is read is then seen at the next look.
        stamp = _stamp(path)
        held = read_keys(path)
        self._stamp = stamp
        self._keys = {key.sha256: key for key in held.keys}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """None where there is no file: what reads it then says so."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
