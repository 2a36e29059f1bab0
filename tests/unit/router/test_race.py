"""Running together until the first ends, even when a cancellation is lost."""

import asyncio

import pytest

from troupe.aio import first_to_end
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
