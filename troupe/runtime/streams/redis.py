"""Connects to Redis: clients with bounded waits, Redis errors as Troupe's errors.

Owns connection settings and the mapping of Redis errors. Never knows a key or a record.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis.exceptions as rex
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import EqualJitterBackoff

from troupe.errors import InvalidArgumentError, OverloadedError, TroupeError, UnavailableError
from troupe.runtime.tls import configured
from troupe.runtime.tls.redis import present_certificate

SOCKET_TIMEOUT_S = 10.0
"""Timeout of one command; blocking commands are cut into pieces well below it."""

MAX_BLOCK_S = 2.0
"""Longest piece of a blocking read."""

WHEN_FULL = "#!lua flags=allow-oom\n"
"""First line, before all else, of a script that a full Redis runs too: one that writes little, and
without which no job there could be recorded or ended, so that nothing would be freed. Redis 7 on.
"""

_PASSING = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
"""Errors of a server that can't take writes for a while: its disk is full, it lost its replicas."""

_T = TypeVar("_T")
_deadline: ContextVar[float | None] = ContextVar("redis_retry_deadline", default=None)


class BoundedRetry(Retry):
    """Retries lost connections until ``retry_for_s`` has passed, however calls are nested.

    A server that became a replica refuses writes: a new connection leads to the current primary,
    so this counts as a lost connection.

    redis-py retries a command and, inside it, the connection; a count would multiply. It also
    sends with ``asyncio.wait_for``, which before Python 3.12 drops a cancellation that arrives
    together with the result: it is raised here.
    """

    def __init__(self, retry_for_s: float) -> None:
        super().__init__(EqualJitterBackoff(cap=1.0, base=0.02), retries=-1)
        self._retry_for_s = retry_for_s

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[_T]],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> _T:
        """Call ``do`` until it answers, fails for good, or the time is up."""
        now = asyncio.get_running_loop().time
        was_cancelled = _num_cancels()
        inherited = _deadline.get()
        deadline = now() + self._retry_for_s if inherited is None else inherited
        token = _deadline.set(deadline)
        failures = 0
        try:
            while True:
                try:
                    return await _attempt(do, was_cancelled)
                except (rex.ConnectionError, rex.TimeoutError, rex.ReadOnlyError) as error:
                    failures += 1
                    await (fail(error, failures) if with_failure_count else fail(error))
                    pause = self._backoff.compute(failures)
                    is_final = isinstance(error, rex.AuthenticationError) or (
                        is_retryable is not None and not is_retryable(error)
                    )
                    if is_final or now() + pause >= deadline:
                        raise
                await asyncio.sleep(pause)
        finally:
            _deadline.reset(token)


async def connect(
    url: str,
    *,
    connect_for_s: float = 10.0,
    retry_for_s: float = 15.0,
    max_connections: int = 256,
) -> Redis:
    """A client that has reached the server at ``url``.

    Lost connections are retried for ``retry_for_s``, to survive a restart of the server; a command
    that was sent may then run twice, and every command here allows that. A rediss:// URL gets the
    certificate that TROUPE_TLS_* names.

    Raises:
        InvalidArgumentError: ``url`` is not a Redis URL.
        UnavailableError: no answer within ``connect_for_s``.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            protocol=2,
            decode_responses=False,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=min(5.0, max(connect_for_s, 0.1)),
            health_check_interval=30,
            max_connections=max_connections,
            timeout=SOCKET_TIMEOUT_S,
            retry=BoundedRetry(retry_for_s),
        )
    except ValueError as error:
        raise InvalidArgumentError(
            f"{without_password(url)!r} is not a Redis URL ({error}); give redis://host:port/db."
        ) from error
    present_certificate(pool, configured())
    client = Redis.from_pool(pool)
    token = _deadline.set(asyncio.get_running_loop().time() + connect_for_s)
    try:
        await client.execute_command("PING")
    except rex.RedisError as error:
        await client.aclose()
        raise UnavailableError(
            f"No Redis answers at {without_password(url)} ({error}). Start one (`troupe up` "
            "starts an embedded Valkey), or set the redis_url setting to one that runs."
        ) from error
    except BaseException:
        await client.aclose()
        raise
    finally:
        _deadline.reset(token)
    return client


@contextmanager
def redis_errors(what: str) -> Generator[None]:
    """Turn Redis errors inside the block into TroupeErrors that name ``what``."""
    try:
        yield
    except rex.OutOfMemoryError as error:
        raise OverloadedError(
            f"Redis is out of memory at {what}: {error}. Raise its maxmemory or free the database."
        ) from error
    except (rex.ConnectionError, rex.TimeoutError) as error:
        raise UnavailableError(f"Redis does not answer at {what}: {error}.") from error
    except rex.ReadOnlyError as error:
        raise UnavailableError(
            f"Redis is a replica and takes no writes at {what}: {error}. Point redis_url at the "
            "primary, or wait until the fail-over is over."
        ) from error
    except rex.ResponseError as error:
        if str(error).startswith(_PASSING):
            raise UnavailableError(f"Redis takes no writes at {what}: {error}.") from error
        raise TroupeError(f"Redis refused {what}: {error}.") from error


def without_password(url: str) -> str:
    """``url`` as it may be shown."""
    password = urlsplit(url).password
    shown = url.replace(f":{password}@", ":***@") if password else url
    return re.sub(r"([?&]password=)[^&#]*", r"\1***", shown)


async def _attempt(do: Callable[[], Awaitable[_T]], was_cancelled: int) -> _T:
    """``do()``, or the cancellation that it swallowed."""
    try:
        answer = await do()
    except Exception as error:
        if _num_cancels() > was_cancelled:
            raise asyncio.CancelledError from error
        raise
    if _num_cancels() > was_cancelled:
        raise asyncio.CancelledError
    return answer


def _num_cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
