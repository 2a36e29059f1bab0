"""How long engines and environments were busy, over the processes that played a round."""

import asyncio
import time

import pytest

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.busy import (
    BusyMeter,
    busy_seconds,
    measured,
    note_env,
    note_generate,
    union,
    union_s,
)


def test_union_counts_overlaps_once() -> None:
    assert union_s([(5, 6), (0, 2), (1, 3), (1.5, 1.8)]) == 4
    assert union([(5, 6), (0, 2), (2, 3)]) == [(0, 3), (5, 6)]
    assert union_s([]) == 0


def test_env_time_that_any_players_generation_covers_is_generation() -> None:
    one = pb.Episode(busy=pb.BusyTimes(generate=[0, 2], env=[1, 3]))
    other = pb.Episode(busy=pb.BusyTimes(generate=[4, 5], env=[4.2, 4.4]))
    busy = busy_seconds([one, other, pb.Episode()])
    assert (busy.generate, busy.env) == (3, 1)


def test_record_when_read_elsewhere_then_is_on_the_wall_clock() -> None:
    now = time.monotonic()
    record = BusyMeter(generate=[(now - 3, now - 1), (now - 2, now)]).to_record()
    begin, end = record.generate
    assert end - begin == pytest.approx(3, abs=1e-5)
    assert abs(end - time.time()) < 5


async def test_notes_when_two_tickets_are_played_at_once_then_each_has_its_own() -> None:
    async def call(begin: float) -> None:
        await asyncio.sleep(0)
        note_generate(begin, begin + 1)

    async def play(begin: float) -> BusyMeter:
        with measured() as meter:
            await asyncio.gather(call(begin), call(begin + 10))
            note_env(begin, begin + 2)
        return meter

    first, second = await asyncio.gather(play(0), play(100))
    assert sorted(first.generate) == [(0, 1), (10, 11)]
    assert sorted(second.generate) == [(100, 101), (110, 111)]
    assert (first.env, second.env) == ([(0, 2)], [(100, 102)])
    note_env(0, 1)  # outside of a play nothing is noted, and nothing fails
