"""The event log on a real Valkey."""

import asyncio
import json

import pytest
from redis.asyncio import Redis

from troupe.errors import InvalidArgumentError
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog


async def test_emit_when_the_id_was_used_then_it_counts_once(redis: Redis):
    log = EventLog(redis, "j", source="trainer")
    await log.emit("step.learned", {"step": 1}, event_id="learned-1")
    await log.emit("step.learned", {"step": 1}, event_id="learned-1")
    await log.emit("step.learned", {"step": 2})
    await log.emit("step.learned", {"step": 2})
    events = await log.read()
    assert [json.loads(e.event.data_json)["step"] for e in events] == [1, 2, 2]
    assert {(e.event.job_id, e.event.source) for e in events} == {("j", "trainer")}


async def test_read_when_given_a_place_then_goes_on_after_it(redis: Redis):
    log = EventLog(redis, "j", source="x")
    for i in range(5):
        await log.emit("n", {"i": i})
    page = await log.read(count=2)
    rest = await log.read(page[-1].id)
    assert [json.loads(e.event.data_json)["i"] for e in rest] == [2, 3, 4]
    assert await log.read(rest[-1].id) == []


async def test_read_when_waiting_then_wakes_for_a_new_event(redis: Redis):
    log = EventLog(redis, "j", source="x")
    waiting = asyncio.create_task(log.read(block_s=30))
    await EventLog(redis, "j", source="y").emit("n", {})
    async with asyncio.timeout(20):
        assert len(await waiting) == 1


@pytest.mark.parametrize("after", ["", "$", "abc", "1-", "-1", "1-2-3", "9" * 40])
async def test_read_when_the_place_is_garbage_then_invalid_argument(redis: Redis, after: str):
    with pytest.raises(InvalidArgumentError, match="event"):
        await EventLog(redis, "j", source="x").read(after)


async def test_emit_when_many_then_old_ones_are_trimmed(redis: Redis):
    log = EventLog(redis, "j", source="x", max_length=100)
    for i in range(500):
        await log.emit("n", {"i": i})
    assert await redis.xlen(keys.events("j")) <= 250
    assert await redis.zcard(keys.event_ids("j")) <= 100


async def test_emit_when_a_number_is_not_finite_then_the_event_holds_null(redis: Redis):
    log = EventLog(redis, "j", source="trainer")
    await log.emit("step.learned", {"step": 1, "reward_mean": float("nan"), "loss": 0.5})
    [stored] = await log.read()
    assert stored.event.data_json == '{"step":1,"reward_mean":null,"loss":0.5}'
