"""Repeats a command while Redis is away, in the place that needs the answer.

A connection repeats a lost command for seconds by itself (``streams.redis``). What is here is for
work that must outlive a longer outage, such as a played episode whose groups are not stored yet.
Only for commands that may run twice. Never repeats what Redis refuses.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import redis.exceptions as rex
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from troupe.errors import TroupeError
from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)
_T = TypeVar("_T")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


def is_away(error: BaseException) -> bool:
    """Whether the same command may succeed later."""
    if isinstance(error, TroupeError):
        return error.retryable
    if isinstance(error, rex.AuthenticationError):
        return False
    return isinstance(error, rex.ConnectionError | rex.TimeoutError | rex.ReadOnlyError)


async def until_redis_answers(
    command: Callable[[], Awaitable[_T]], what: str, *, within_s: float
) -> _T:
    """The answer of ``command``; its last error once ``within_s`` has passed.

    ``what`` is for the log. Pauses grow and are jittered.
    """

    def log(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        _log.warning("redis.asked_again", what=what, attempt=state.attempt_number, error=str(error))

    async def ask() -> _T:  # tenacity awaits coroutine functions alone, and command may be a lambda
        return await command()

    retrying = AsyncRetrying(
        retry=retry_if_exception(is_away),
        wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
        stop=stop_after_delay(within_s),
        before_sleep=log,
        reraise=True,
    )
    return await retrying(ask)
