"""The bounded line of Generate calls."""

import asyncio

import pytest

from troupe.errors import OverloadedError
from troupe_router.play.routing.admission import Admission


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_call_when_all_places_are_taken_then_refused_until_one_ends() -> None:
    admission = Admission("job", max_calls=2)
    with admission:
        with admission, pytest.raises(OverloadedError, match="2 Generate calls"):
            admission.__enter__()
        with admission:
            pass


async def test_line_when_room_comes_then_who_waits_longest_goes_first() -> None:
    admission = Admission("job", max_calls=8)
    gone: list[int] = []

    async def waiter(number: int) -> None:
        await admission.wait(10)
        gone.append(number)

    waiting = [asyncio.create_task(waiter(i)) for i in range(3)]
    await settle()
    assert admission.num_waiting == 3
    admission.leave()
    await settle()
    assert gone == [0]
    admission.leave()
    admission.leave()
    admission.leave()  # nobody is left: nothing happens
    await asyncio.gather(*waiting)
    assert gone == [0, 1, 2]
    assert admission.num_waiting == 0


async def test_line_when_time_is_up_then_the_place_is_given_up() -> None:
    admission = Admission("job", max_calls=8)
    await admission.wait(0.01)
    assert admission.num_waiting == 0


async def test_line_when_who_was_called_up_is_cancelled_then_the_next_goes() -> None:
    admission = Admission("job", max_calls=8)
    first = asyncio.create_task(admission.wait(10))
    second = asyncio.create_task(admission.wait(10))
    await settle()
    admission.leave()
    first.cancel()
    await asyncio.wait_for(second, 1)
    assert first.cancelled()
    assert admission.num_waiting == 0


async def test_line_when_a_waiting_call_is_cancelled_then_it_does_not_use_up_the_room() -> None:
    admission = Admission("job", max_calls=8)
    first = asyncio.create_task(admission.wait(10))
    second = asyncio.create_task(admission.wait(10))
    await settle()
    first.cancel()
    await settle()
    admission.leave()
    await asyncio.wait_for(second, 1)
    assert first.cancelled()
    assert admission.num_waiting == 0
