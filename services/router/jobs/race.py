"""Runs coroutines together until the first one ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _leaf(inner) if isinstance(inner, BaseExceptionGroup) else inner
