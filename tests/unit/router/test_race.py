"""Running together until the first ends, even when a cancellation is lost."""

import asyncio
import threading

import pytest

from troupe.aio import first_to_end, to_the_end
from troupe.errors import JobFailedError


async def test_first_to_end_returns_and_cancels_the_rest() -> None:
    ended: list[str] = []

    async def forever() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return ""

    async def quick() -> str:
        await asyncio.sleep(0)
        return "quick"

    assert await first_to_end(forever(), quick()) == "quick"
    assert ended == ["cancelled"]


async def test_first_to_end_raises_the_leaf_of_a_task_group() -> None:
    async def fails() -> None:
        raise JobFailedError("the reason")

    async def grouped() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())

    with pytest.raises(JobFailedError, match="the reason"):
        await first_to_end(grouped(), asyncio.Event().wait())


async def test_first_to_end_survives_a_swallowed_cancellation() -> None:
    swallowed: list[int] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(1)
        await asyncio.Event().wait()

    async def quick() -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await first_to_end(stubborn(), quick())
    assert swallowed == [1]


async def test_to_the_end_when_cancelled_then_raises_only_after_the_thread_has_ended() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        assert may_end.wait(30)
        has_ended.set()

    working = asyncio.create_task(to_the_end(work))
    for _ in range(3):  # also when it is cancelled again
        await asyncio.sleep(0.01)
        working.cancel()
    await asyncio.sleep(0.05)
    assert not working.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert has_ended.is_set()


async def test_to_the_end_when_the_work_fails_then_raises_that() -> None:
    with pytest.raises(ZeroDivisionError):
        await to_the_end(lambda: 1 // 0)
