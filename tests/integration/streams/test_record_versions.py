"""Records of a newer version are refused where they are read, and stay where they are."""

from typing import Any, cast

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import ROUND_KIND_TRAIN, Episode, Group, Ticket
from troupe.runtime.streams import keys
from troupe.runtime.streams.consumer import Consumer
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe.runtime.streams.stream import FIELD, Stream
from troupe.runtime.streams.versions import RECORD_VERSION, VERSION_FIELD, NewerRecordError

KEY = "troupe:{j}:tickets"
NEWER = str(RECORD_VERSION + 1).encode()


async def _entries(redis: Redis, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    return cast("Any", await redis.xrange(key))


def reader(redis: Redis) -> Consumer:
    return Consumer(redis, KEY, "workers", "a", claim_idle_s=60.0, max_attempts=0)


async def test_entries_when_written_then_each_stream_names_its_version(redis: Redis) -> None:
    ledger, round_id = StepLedger(redis, "j"), "train-00000"
    ticket = Ticket(ticket_id="j/train-00000/00000", job_id="j", round_id=round_id)
    await ledger.open_round(round_id, ROUND_KIND_TRAIN, 0, [ticket])
    opened = await _entries(redis, keys.tickets("j"))
    await ledger.complete_ticket(ticket, "", [Group(group_id="g", policy="p")], Episode())
    await EventLog(redis, "j", source="router").emit("step.done", {})
    await Stream(redis, KEY + ":own", max_length=10).append(b"x")
    written = [
        opened,
        *[
            await _entries(redis, key)
            for key in (
                keys.groups("j", "p"),
                keys.episodes("j", round_id),
                keys.events("j"),
                KEY + ":own",
            )
        ],
    ]
    said = [[fields[VERSION_FIELD] for _, fields in entries] for entries in written]
    assert said == [[str(RECORD_VERSION).encode()]] * 5


async def test_read_when_an_entry_is_newer_then_refuses_in_words_and_keeps_it(redis: Redis) -> None:
    await redis.xadd(KEY, {VERSION_FIELD: NEWER, FIELD: b"of tomorrow"})
    [(entry_id, _)] = await _entries(redis, KEY)
    consumer = reader(redis)
    with pytest.raises(NewerRecordError) as refused:
        await consumer.read(count=10, block_s=0)
    assert refused.value.message == (
        f"entry {entry_id.decode()} of {KEY} has record version 2, and this process reads up to 1: "
        "a newer version of Troupe wrote it. It was left as it is. Run this process from the newer "
        "version, or let the job end there first."
    )
    # The newer process that comes under this name finds it.
    [(pending, _)] = await _entries(redis, KEY)
    assert pending == entry_id
    assert (await redis.xpending(KEY, "workers"))["pending"] == 1


async def test_read_when_an_entry_has_no_version_then_it_is_of_the_first(redis: Redis) -> None:
    await redis.xadd(KEY, {FIELD: b"of yesterday"})
    [entry] = await reader(redis).read(count=10, block_s=0)
    assert entry.payload == b"of yesterday"


@pytest.mark.parametrize("said", [b"two", b"", b"0", b"-1", b"\xff"])
async def test_read_when_the_version_is_nonsense_then_refuses(redis: Redis, said: bytes) -> None:
    await redis.xadd(KEY, {VERSION_FIELD: said, FIELD: b"x"})
    with pytest.raises(NewerRecordError, match="reads up to 1"):
        await reader(redis).read(count=10, block_s=0)


async def test_episodes_and_events_when_newer_then_both_refuse(redis: Redis) -> None:
    for key in (keys.episodes("j", "train-00000"), keys.events("j")):
        await redis.xadd(key, {VERSION_FIELD: NEWER, FIELD: b""})
    with pytest.raises(NewerRecordError, match=r"^episode .* of round train-00000"):
        await StepLedger(redis, "j").episodes("train-00000")
    with pytest.raises(NewerRecordError, match=r"^event .* of job 'j'"):
        await EventLog(redis, "j", source="router").read()
