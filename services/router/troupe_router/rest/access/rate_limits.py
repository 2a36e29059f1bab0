"""Rate limits: token buckets for requests and for wrong keys.

docs/decisions/0004-libraries.md says why they are not a library's.
"""

import time
from collections import OrderedDict

from troupe.clients.rest.errors import TooManyError

_WRONG_PER_S = 5.0
"""Wrong keys of one address that get 401 in a second; further ones get 429, to slow a loop that
was misconfigured. A right key is let in at any rate, for others may share the address: guessing is
bounded by a key's 256 random bits alone."""
_WRONG_BURST = 20
_MAX_BUCKETS = 10_000


class RateLimits:
    """Token buckets by name; the least used are forgotten."""

    def __init__(self) -> None:
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate_per_s: float, burst: int) -> None:
        """Take one token; raises TooManyError when there is none."""
        now = time.monotonic()
        level, at = self._levels.pop(name, (float(burst), now))
        level = min(float(burst), level + (now - at) * rate_per_s)
        self._levels[name] = (max(0.0, level - 1.0), now)
        while len(self._levels) > _MAX_BUCKETS:
            self._levels.popitem(last=False)
        if level < 1.0:
            self._levels[name] = (level, now)
            wait_s = (1.0 - level) / rate_per_s
            raise TooManyError(
                f"more than {rate_per_s:g} requests a second; ask again in {wait_s:.2f} s",
                retry_after_s=wait_s,
            )


class WrongKeys:
    """Wrong keys of each address, wherever they are tried: a header, a cookie or the sign-in."""

    def __init__(self) -> None:
        self._limits = RateLimits()

    def count(self, address: str) -> None:
        """Count one; raises TooManyError beyond ``_WRONG_PER_S``."""
        self._limits.take(address, _WRONG_PER_S, _WRONG_BURST)
