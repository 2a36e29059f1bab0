"""Epochs on a real Valkey: whoever was taken over from changes nothing any more."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import ROUND_KIND_TRAIN, Episode, Ticket
from troupe.errors import FencedError
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer, Entry
from troupe.runtime.streams.fencing import Fence, Role, check_fence, newest_epoch, take_epoch
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.stream import Stream

JOB, ROUND = "j", "train-00000"
TICKET = Ticket(ticket_id="j/train-00000/00000", job_id=JOB, round_id=ROUND)

Change = Callable[[StepLedger], Awaitable[object]]

CHANGES: dict[str, tuple[Role, Change]] = {
    "open a round": ("router", lambda it: it.open_round(ROUND, ROUND_KIND_TRAIN, 0, [TICKET])),
    "record a round": ("router", lambda it: it.mark_recorded("train-00001")),
    "say that it conducts": ("router", lambda it: it.note_conducted(1.0)),
    "commit a version": ("trainer", lambda it: it.commit_version("p", 1, "d")),
    "set the result": ("trainer", lambda it: it.set_result({"step": 1})),
    "fail the job": ("trainer", lambda it: it.fail("time is up")),
    "look": ("trainer", lambda it: it.check()),
}


async def _snapshot(redis: Redis) -> dict[bytes, bytes | None]:
    return {key: await redis.dump(key) for key in await redis.keys("*")}


async def _recordable(redis: Redis) -> None:
    """A complete round that is not recorded."""
    ticket = Ticket(ticket_id="t", job_id=JOB, round_id="train-00001")
    ledger = StepLedger(redis, JOB)
    await ledger.open_round("train-00001", ROUND_KIND_TRAIN, 1, [ticket])
    await ledger.complete_ticket(ticket, "", [], Episode(episode_id="t"))


@pytest.mark.parametrize("name", CHANGES)
async def test_change_when_another_process_took_over_then_refused_and_nothing_changes(
    redis: Redis, name: str
) -> None:
    role, change = CHANGES[name]
    await _recordable(redis)
    zombie, successor = StepLedger(redis, JOB), StepLedger(redis, JOB)
    first = await zombie.take(role, "old-0")
    second = await successor.take(role, "new 1")
    assert second.epoch > first.epoch
    before = await _snapshot(redis)
    with pytest.raises(FencedError, match=f"The {role} of job j .*old-0.* was taken over by new 1"):
        await change(zombie)
    assert await _snapshot(redis) == before
    await change(successor)


async def test_change_when_the_other_role_is_taken_over_then_goes_on(redis: Redis) -> None:
    trainer = StepLedger(redis, JOB)
    await trainer.take("trainer", "t")
    for _ in range(2):
        await take_epoch(redis, JOB, "router", "r")
    await trainer.commit_version("p", 0, "d")
    assert await trainer.versions() == {"p": 0}


async def test_change_when_the_job_was_deleted_then_the_old_turn_is_over(redis: Redis) -> None:
    zombie = StepLedger(redis, JOB)
    old = await zombie.take("trainer", "t")
    await zombie.delete()
    with pytest.raises(FencedError, match="nobody"):
        await zombie.commit_version("p", 3, "d")
    assert await redis.keys("*") == []
    # A later life begins higher, though the counter went with the ledger.
    new = await take_epoch(redis, JOB, "trainer", "t")
    assert new.epoch > old.epoch
    with pytest.raises(FencedError):
        await check_fence(redis, old)
    await check_fence(redis, new)


async def test_take_epoch_when_the_clock_goes_back_then_it_grows_all_the_same(redis: Redis) -> None:
    ahead = 8_000_000_000_000_000
    await redis.hset(keys.epochs(JOB), "trainer", str(ahead))
    turns = [await take_epoch(redis, JOB, "trainer", "t") for _ in range(3)]
    assert [turn.epoch for turn in turns] == [ahead + 1, ahead + 2, ahead + 3]


def _reader(redis: Redis, fence: Fence | None) -> Consumer:
    return Consumer(
        redis, KEY, keys.TRAINER_GROUP, "trainer", claim_idle_s=60, max_attempts=0, fence=fence
    )


KEY = keys.groups(JOB, "p")


async def test_ack_and_park_when_taken_over_then_refused_and_the_successor_has_all(
    redis: Redis,
) -> None:
    stream = Stream(redis, KEY, max_length=10)
    ids = [await stream.append(b"%d" % i) for i in range(3)]
    zombie = _reader(redis, await take_epoch(redis, JOB, "trainer", "old"))
    held = await zombie.read(count=10, block_s=0)
    successor = _reader(redis, await take_epoch(redis, JOB, "trainer", "new"))
    with pytest.raises(FencedError):
        await zombie.ack(*ids)
    with pytest.raises(FencedError):
        await zombie.park(held[0], "poison")
    assert await redis.exists(keys.dead(KEY)) == 0
    again = await successor.read(count=10, block_s=0)
    assert [entry.id for entry in again] == ids
    await successor.park(again[0], "poison")
    await successor.ack(*ids)
    assert await redis.xlen(KEY) == 0


async def test_read_when_a_group_is_of_a_round_then_the_entry_names_it(redis: Redis) -> None:
    await redis.xadd(KEY, {"p": b"\xff", "r": ROUND})
    await redis.xadd(KEY, {"p": b"\xff"})
    found: list[Entry] = await _reader(redis, None).read(count=5, block_s=0)
    assert [entry.round_id for entry in found] == [ROUND, ""]


async def test_take_when_policies_have_trainers_then_only_the_same_policy_is_taken_over(
    redis: Redis,
) -> None:
    one, two, again = (StepLedger(redis, JOB) for _ in range(3))
    first = await one.take("trainer", "t-a", policy="a")
    await two.take("trainer", "t-b", policy="b")
    await one.commit_version("a", 0, "d")
    await two.commit_version("b", 0, "d")
    successor = await again.take("trainer", "t-a 2", policy="a")
    with pytest.raises(FencedError, match=r"trainer of policy 'a' of job j .*taken over by t-a 2"):
        await one.commit_version("a", 1, "d")
    await two.commit_version("b", 1, "d")
    assert await newest_epoch(redis, JOB, "trainer", policy="a") == successor.epoch > first.epoch
    assert await newest_epoch(redis, JOB, "trainer") == 0
    assert await one.versions() == {"a": 0, "b": 1}


async def test_reader_when_the_trainer_of_another_policy_begins_then_acks_on(redis: Redis) -> None:
    await Stream(redis, KEY, max_length=10).append(b"x")
    reader = _reader(redis, await take_epoch(redis, JOB, "trainer", "t-a", policy="a"))
    (entry,) = await reader.read(count=1, block_s=0.0)
    await take_epoch(redis, JOB, "trainer", "t-b", policy="b")
    await reader.ack(entry.id)
    await take_epoch(redis, JOB, "trainer", "t-a 2", policy="a")
    with pytest.raises(FencedError):
        await reader.ack(entry.id)
