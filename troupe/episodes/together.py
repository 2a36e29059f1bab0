"""Awaits several calls of one episode at once; the first failure ends the others."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Results in order; raises the first single error, never a group of them."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise _first(failures) from failures
    return [task.result() for task in tasks]


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    inner = failures.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner
