"""Streams and consumers on a real Valkey."""

import asyncio

import pytest
from redis.asyncio import Redis

from troupe.errors import OverloadedError
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer
from troupe.runtime.streams.stream import Stream

KEY = "troupe:{j}:tickets"


def consumer(
    redis: Redis, name: str, *, claim_idle_s: float = 60.0, max_attempts: int = 0
) -> Consumer:
    return Consumer(
        redis, KEY, "workers", name, claim_idle_s=claim_idle_s, max_attempts=max_attempts
    )


async def fill(redis: Redis, num: int) -> list[str]:
    stream = Stream(redis, KEY, max_length=1000)
    return [await stream.append(b"payload-%d" % i) for i in range(num)]


async def test_append_when_full_of_unfinished_work_then_refuses_until_acked(redis: Redis):
    stream = Stream(redis, KEY, max_length=2)
    await stream.append(b"a")
    await stream.append(b"b")
    with pytest.raises(OverloadedError, match="2 unfinished entries"):
        await stream.append(b"c")
    reader = consumer(redis, "a")
    [first, _] = await reader.read(count=10, block_s=0)
    with pytest.raises(OverloadedError):
        await stream.append(b"c")
    await reader.ack(first.id)
    await stream.append(b"c")
    assert await stream.length() == 2


async def test_ack_when_all_are_done_then_the_stream_is_empty(redis: Redis):
    await fill(redis, 20)
    reader = consumer(redis, "a")
    entries = await reader.read(count=50, block_s=0)
    assert [e.payload for e in entries] == [b"payload-%d" % i for i in range(20)]
    assert {e.attempts for e in entries} == {1}
    await reader.ack(*(e.id for e in entries))
    await reader.ack(*(e.id for e in entries))
    assert await redis.xlen(KEY) == 0
    assert (await redis.xpending(KEY, "workers"))["pending"] == 0


async def test_read_when_two_readers_then_each_entry_goes_to_one(redis: Redis):
    ids = await fill(redis, 10)
    a, b = consumer(redis, "a"), consumer(redis, "b")
    first = await a.read(count=4, block_s=0)
    second = await b.read(count=10, block_s=0)
    assert sorted(e.id for e in first + second) == sorted(ids)


async def test_read_when_reader_comes_back_then_it_gets_what_it_held_first(redis: Redis):
    ids = await fill(redis, 5)
    await consumer(redis, "a").read(count=3, block_s=0)
    again = consumer(redis, "a")
    held = await again.read(count=2, block_s=0)
    held += await again.read(count=2, block_s=0)
    assert [e.id for e in held] == ids[:3]
    assert {e.attempts for e in held} == {2}
    assert [e.id for e in await again.read(count=9, block_s=0)] == ids[3:]
    assert await again.read(count=9, block_s=0) == []


async def test_read_when_the_holder_is_dead_then_claims_after_idle_time(redis: Redis):
    ids = await fill(redis, 3)
    await consumer(redis, "dead").read(count=3, block_s=0)
    patient = consumer(redis, "patient", claim_idle_s=60)
    assert await patient.read(count=3, block_s=0) == []
    heir = consumer(redis, "heir", claim_idle_s=0.001)
    claimed = await heir.read(count=3, block_s=5)
    assert [e.id for e in claimed] == ids
    assert {e.attempts for e in claimed} == {2}


async def test_keep_when_renewed_then_nobody_claims_and_attempts_stay(redis: Redis):
    await fill(redis, 1)
    worker, thief = consumer(redis, "worker"), consumer(redis, "thief", claim_idle_s=0.4)
    [entry] = await worker.read(count=1, block_s=0)
    await asyncio.sleep(0.3)
    await worker.keep(entry.id)
    assert await thief.read(count=1, block_s=0.2) == []
    [stolen] = await thief.read(count=1, block_s=5)
    assert stolen.attempts == 2
    await worker.keep(entry.id)  # it is the thief's now: no effect
    [pending] = await redis.xpending_range(KEY, "workers", "-", "+", 10)
    assert pending["consumer"] == b"thief"


async def test_keep_when_thousands_are_held_then_renews_all_but_those_of_others(redis: Redis):
    async with redis.pipeline(transaction=False) as pipe:
        for number in range(2100):
            pipe.xadd(KEY, {"p": str(number)})
        ids = [entry_id.decode() for entry_id in await pipe.execute()]
    worker = consumer(redis, "worker")
    while await worker.read(count=500, block_s=0):
        pass
    long_ms = 600_000
    await redis.xclaim(KEY, "workers", "worker", 0, ids, idle=long_ms, justid=True)
    await redis.xclaim(KEY, "workers", "thief", 0, ids[::7], idle=long_ms, justid=True)
    await worker.keep(*reversed(ids[:2050]))
    pending = await redis.xpending_range(KEY, "workers", "-", "+", 3000)
    young = {p["message_id"].decode() for p in pending if p["time_since_delivered"] < long_ms}
    assert young == set(ids[:2050]) - set(ids[::7])
    thieves = {p["message_id"].decode() for p in pending if p["consumer"] == b"thief"}
    assert thieves == set(ids[::7])


async def test_read_when_an_entry_was_deleted_while_pending_then_it_is_forgotten(redis: Redis):
    ids = await fill(redis, 3)
    await consumer(redis, "a").read(count=3, block_s=0)
    await redis.xdel(KEY, ids[1])
    entries = await consumer(redis, "a").read(count=5, block_s=0)
    assert [e.id for e in entries] == [ids[0], ids[2]]
    assert (await redis.xpending(KEY, "workers"))["pending"] == 2


async def test_claim_when_an_entry_was_deleted_while_pending_then_it_is_forgotten(redis: Redis):
    ids = await fill(redis, 2)
    await consumer(redis, "a").read(count=2, block_s=0)
    await redis.xdel(KEY, ids[0])
    entries = await consumer(redis, "b", claim_idle_s=0.001).read(count=5, block_s=5)
    assert [e.id for e in entries] == [ids[1]]
    assert (await redis.xpending(KEY, "workers"))["pending"] == 1


async def test_read_when_delivered_too_often_then_the_entry_says_so(redis: Redis):
    await fill(redis, 1)
    seen = []
    for _ in range(3):
        [entry] = await consumer(redis, "a", max_attempts=2).read(count=1, block_s=0)
        seen.append((entry.attempts, entry.is_exhausted))
    assert seen == [(1, False), (2, False), (3, True)]


async def test_park_when_poison_then_it_waits_in_the_dead_stream_with_the_reason(redis: Redis):
    await fill(redis, 2)
    reader = consumer(redis, "a")
    [entry, other] = await reader.read(count=2, block_s=0)
    await reader.park(entry, "cannot be played")
    await reader.park(entry, "cannot be played")
    [(_, fields)] = await redis.xrange(keys.dead(KEY))
    assert fields[b"p"] == b"payload-0"
    assert fields[b"reason"] == b"cannot be played"
    assert fields[b"entry_id"].decode() == entry.id
    [pending] = await redis.xpending_range(KEY, "workers", "-", "+", 10)
    assert pending["message_id"].decode() == other.id
    assert await redis.xlen(KEY) == 1


async def test_read_when_an_entry_has_no_payload_then_it_is_parked_and_the_rest_arrives(
    redis: Redis,
):
    await redis.xadd(KEY, {"junk": "1"})
    await fill(redis, 1)
    [entry] = await consumer(redis, "a").read(count=5, block_s=0)
    assert entry.payload == b"payload-0"
    [(_, fields)] = await redis.xrange(keys.dead(KEY))
    assert b"junk" in fields[b"p"]


async def test_read_when_blocked_then_wakes_for_a_new_entry(redis: Redis):
    reader = consumer(redis, "a")
    assert await reader.read(count=1, block_s=0) == []
    waiting = asyncio.create_task(reader.read(count=1, block_s=30))
    await fill(redis, 1)
    async with asyncio.timeout(20):
        [entry] = await waiting
    assert entry.payload == b"payload-0"


async def test_read_when_many_readers_block_then_other_commands_are_not_starved(redis: Redis):
    readers = [consumer(redis, f"r{i}") for i in range(50)]
    waiting = [asyncio.create_task(r.read(count=1, block_s=30)) for r in readers]
    async with asyncio.timeout(25):
        for _ in range(20):
            await redis.ping()
        assert not any(each.done() for each in waiting)
        await fill(redis, 50)
        found = await asyncio.gather(*waiting)
    assert [len(entries) for entries in found] == [1] * 50


async def test_read_when_the_stream_is_deleted_meanwhile_then_goes_on(redis: Redis):
    reader = consumer(redis, "a")
    assert await reader.read(count=1, block_s=0) == []
    await redis.delete(KEY)
    assert await reader.read(count=1, block_s=0) == []
    await fill(redis, 1)
    assert len(await reader.read(count=1, block_s=1)) == 1
