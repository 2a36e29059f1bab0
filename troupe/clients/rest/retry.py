"""How long a router that does not answer is asked again, and what is said in the end.

Owns the deadline and the words; each client sleeps in its own way. Never does I/O.
"""

import time

import httpx

from troupe.clients.rest import answers
from troupe.errors import TroupeError, UnavailableError
from troupe.retry import Backoff

PAUSE_S = 0.5
"""Between two looks at a job's log."""
_BACKOFF = Backoff(0.5, 0.5)
LOST = (UnavailableError, httpx.TransportError)
"""What a router that restarts looks like."""


class RetryWindow:
    """One call's patience, or one stream's; it begins when the first try fails."""

    def __init__(self, base_url: str, retry_for_s: float) -> None:
        self._base_url = base_url
        self._retry_for_s = retry_for_s
        self._lost_at: float | None = None

    def restore(self) -> None:
        """The router answered."""
        self._lost_at = None

    def lose(self, error: Exception) -> float:
        """Seconds to wait before the next try.

        Raises:
            UnavailableError: the patience is over; InvalidArgumentError: it is no URL that is
            asked; TroupeError: asking again cannot help.
        """
        if isinstance(error, httpx.InvalidURL):
            raise answers.not_a_url(self._base_url, error) from error
        if not isinstance(error, LOST):
            raise TroupeError(f"{self._base_url}: {error}") from error
        self._lost_at = self._lost_at or time.monotonic()
        is_over = time.monotonic() - self._lost_at >= self._retry_for_s
        if is_over or answers.is_distrusted(error):
            raise answers.unreachable(self._base_url, error) from error
        return _BACKOFF.pause_s(1)
