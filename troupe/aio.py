"""Awaits coroutines and threads, keeps wall-clock deadlines. Knows no jobs and no services."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")
_TRIES = 20
_TRY_S = 0.5


async def gather(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Results in order; the first failure cancels the other calls.

    Raises that single failure, never a group of them.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise _first(failures) from failures
    return [task.result() for task in tasks]


async def first_to_end(*work: Coroutine[Any, Any, _T]) -> _T:
    """Return or raise what the first coroutine to end does; cancel and await the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = next(task for task in tasks if task in done)
        return ended.result()
    except BaseExceptionGroup as failures:
        raise _first(failures) from failures
    finally:
        await cancel_all(*tasks)


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel and await tasks repeatedly, because a library may swallow a cancellation."""
    for _ in range(_TRIES):
        pending = [task for task in tasks if not task.done()]
        if not pending:
            break
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_TRY_S)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


async def to_the_end(work: Callable[[], _T]) -> _T:
    """Run ``work`` in a thread; a cancellation is raised only after the thread has ended.

    A thread can't be cancelled: one that outlives its caller would go on beside the caller's
    successor.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        working.exception()
        raise cancelled
    return working.result()


class WallClockDeadline:
    """A limit of ``limit_s`` after an instant in Unix seconds, possibly from an earlier process.

    Converts to the monotonic clock once, when it first sees the instant, so that adjusting the
    system clock during a job neither ends the job nor makes it wait for ever.

    Example: ``WallClockDeadline(3600.0).left_s(state.opened_at)``.
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
        """Seconds left; 0 or less once the time is up."""
        now = self._monotonic()
        if since != self._since:
            self._since = since
            self._deadline = now + self._limit_s - max(0.0, self._wall() - since)
        return self._deadline - now


def _first(failures: BaseExceptionGroup[Any]) -> Any:
    inner = failures.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
