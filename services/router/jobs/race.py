"""Runs coroutines together until the first one ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_TRIES = 20
_TRY_S = 0.5


async def first_to_end(*work: Coroutine[Any, Any, _T]) -> _T:
    """What the first to end returns or raises; the others are cancelled and awaited."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = next(task for task in tasks if task in done)
        return ended.result()
    except BaseExceptionGroup as group:
        raise _leaf(group) from group
    finally:
        await end(*tasks)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel and await tasks, again and again: a library may lose one cancellation on its way."""
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


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _leaf(inner) if isinstance(inner, BaseExceptionGroup) else inner
