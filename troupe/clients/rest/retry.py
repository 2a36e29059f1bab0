"""Decides how long to retry a router that does not answer, or asks to wait, and the final error.

Owns the deadline and the message; each client does its own sleeping. Never does I/O.
"""

import time

import httpx

from troupe.clients.rest import answers
from troupe.clients.rest.errors import TooManyError
from troupe.errors import TroupeError, UnavailableError
from troupe.retry import Backoff

PAUSE_S = 0.5
"""Time between two polls of a job's log."""
WAITED_S = 10.0
"""How long an answer may take beyond the ``wait_s`` that was asked for."""
FOLDERS_S = 600.0
"""How long an answer may take that reads or removes run folders first."""
_BACKOFF = Backoff(0.5, 0.5)
LOST = (UnavailableError, TooManyError, httpx.TransportError)
"""The errors that a restarting router causes, or one that bounds its callers' requests."""
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Those after which the request cannot have arrived."""


class RetryWindow:
    """The retry deadline of one call or stream; it starts when the first attempt fails.

    A call that is not ``is_repeatable`` has no retry once it may have arrived.
    """

    def __init__(self, base_url: str, retry_for_s: float, *, is_repeatable: bool = True) -> None:
        self._base_url = base_url
        self._retry_for_s = retry_for_s
        self._is_repeatable = is_repeatable
        self._lost_at: float | None = None

    def restore(self) -> None:
        """The router answered."""
        self._lost_at = None

    def lose(self, error: Exception) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            UnavailableError: the deadline has passed, or the call may have arrived and is not
            repeatable; InvalidArgumentError: the address is not a URL; TooManyError: it asks to
            wait for longer; TroupeError: a retry cannot help.
        """
        if isinstance(error, httpx.InvalidURL):
            raise answers.not_a_url(self._base_url, error) from error
        if not isinstance(error, LOST):
            raise TroupeError(f"{self._base_url}: {error}") from error
        self._lost_at = self._lost_at or time.monotonic()
        left_s = self._lost_at + self._retry_for_s - time.monotonic()
        if isinstance(error, TooManyError):
            if error.retry_after_s > left_s:
                raise error
            return error.retry_after_s
        is_unsure = not self._is_repeatable and not isinstance(error, _UNSENT)
        if left_s <= 0 or is_unsure or answers.is_distrusted(error):
            raise answers.unreachable(self._base_url, error, is_unsure=is_unsure) from error
        return _BACKOFF.pause_s(1)
