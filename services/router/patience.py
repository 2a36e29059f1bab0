"""How long something may still take that began at an instant of the wall clock.

Owns the translation to the monotonic clock, once, when the instant is first seen: a clock that is
set while a job runs must neither end the job nor let it wait for ever. Knows no job.
"""

import time
from collections.abc import Callable


class Patience:
    """``limit_s`` from an instant on. Instants are Unix seconds, possibly of an earlier process.

    Example: ``Patience(3600.0).left_s(state.opened_at)``.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._wall = wall
        self._monotonic = monotonic
        self._since: float | None = None
        self._deadline = 0.0

    def left_s(self, since: float) -> float:
        """Seconds that are left; none or fewer: the time is up."""
        now = self._monotonic()
        if since != self._since:
            self._since = since
            self._deadline = now + self._limit_s - max(0.0, self._wall() - since)
        return self._deadline - now
