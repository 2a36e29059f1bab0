"""Repeats a command while Redis is unreachable, for work that must survive a long outage.

A connection repeats a lost command for seconds by itself (``streams.redis``). This module is for
work that must outlive a longer outage, such as a played episode whose groups are not stored yet.
Only for commands that may run twice. Never repeats what Redis refuses.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import redis.exceptions as rex

from troupe.errors import TroupeError
from troupe.retry import Backoff, retry
from troupe.runtime.telemetry.logging import get_logger

_log = get_logger(__name__)
_T = TypeVar("_T")
_BACKOFF = Backoff(0.1, 2.0)


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

    ``what`` is for the log.
    """

    async def ask() -> _T:
        try:
            return await command()
        except Exception as error:
            if is_away(error):
                _log.warning("redis.does_not_answer", what=what, error=str(error))
            raise

    return await retry(ask, _BACKOFF, within_s=within_s, may_pass=is_away)
