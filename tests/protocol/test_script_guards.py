"""Each guard of the ledger's scripts is needed: without its line, the real ledger breaks."""

import contextlib
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import ROUND_KIND_TRAIN, Episode, Group, Ticket
from troupe.errors import TroupeError
from troupe.runtime.streams import keys, scripts
from troupe.runtime.streams.ledger import StepLedger

JOB, ROUND = "j", "train-00000"
TICKET = Ticket(ticket_id="t0", job_id=JOB, round_id=ROUND)

Holds = Callable[[Redis], Awaitable[bool]]


async def _open(ledger: StepLedger) -> None:
    await ledger.open_round(ROUND, ROUND_KIND_TRAIN, 0, [TICKET])


async def _opened_twice(redis: Redis) -> bool:
    ledger = StepLedger(redis, JOB)
    await _open(ledger)
    await _open(ledger)
    return await redis.xlen(keys.tickets(JOB)) == 1


async def _completed_twice(redis: Redis) -> bool:
    ledger = StepLedger(redis, JOB)
    await _open(ledger)
    group = Group(group_id="g", policy="p")
    for _ in range(2):
        await ledger.complete_ticket(TICKET, "", [group], Episode(episode_id="t0"))
    state = await ledger.round(ROUND)
    return state is not None and dict(state.num_groups) == {"p": 1}


async def _committed_late(redis: Redis) -> bool:
    ledger = StepLedger(redis, JOB)
    for version in (2, 1):
        try:
            await ledger.commit_version("p", version, f"d{version}")
        except TroupeError:
            continue
    return await ledger.versions() == {"p": 2}


async def _committed_otherwise(redis: Redis) -> bool:
    ledger = StepLedger(redis, JOB)
    for digest in ("d", "learnt again"):
        try:
            await ledger.commit_version("p", 1, digest)
        except TroupeError:
            continue
    return await ledger.digests() == {"p": "d"}


async def _committed_by_a_zombie(redis: Redis) -> bool:
    zombie, successor = StepLedger(redis, JOB), StepLedger(redis, JOB)
    await zombie.take("trainer", "old")
    await successor.take("trainer", "new")
    with contextlib.suppress(TroupeError):
        await zombie.commit_version("p", 1, "d")
    return await successor.versions() == {}


GUARDS: dict[str, tuple[str, str, Holds]] = {
    "open once": ("OPEN_ROUND", "if redis.call('EXISTS', KEYS[1]) == 1", _opened_twice),
    "first": ("COMPLETE_TICKET", "if is_first then", _completed_twice),
    "commit forward": ("COMMIT_VERSION", "if now and tonumber(now) >", _committed_late),
    "one digest": ("COMMIT_VERSION", "if now == ARGV[2] then", _committed_otherwise),
    "commit epoch": ("COMMIT_VERSION", "if newest ~= epoch then", _committed_by_a_zombie),
}
"""The script, the condition that guards, and what holds with it."""


@pytest.mark.parametrize("guard", GUARDS)
async def test_script_when_its_guard_is_there_then_it_holds_and_without_it_breaks(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    name, line, holds = GUARDS[guard]
    assert await holds(redis)
    await redis.flushall()
    text: str = getattr(scripts, name)
    assert text.count(line) == 1
    without = "if true then" if guard == "first" else line.replace("if ", "if false and ", 1)
    monkeypatch.setattr(scripts, name, text.replace(line, without))
    assert not await holds(redis)
