"""Which tickets are dropped: failures of playing count, deaths of workers only when they repeat."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import DecodeError
from job_world import JOB, World, job_spec, tickets
from no_memory import NoMemory
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.player import EpisodePlayer, Played
from troupe.errors import OverloadedError, TroupeError, UnavailableError
from troupe.runtime.streams import keys
from troupe.spec.job import LimitsSpec
from troupe_router.play import workers as workers_module
from troupe_router.play.workers import EpisodeWorkers

ROUND = "train-00000"
MAX_ATTEMPTS = 2
LIMITS = LimitsSpec(max_attempts=MAX_ATTEMPTS)


class Player:
    """Plays each ticket at once, or fails while ``failures`` are left."""

    def __init__(self, failures: int = 0, error: type[TroupeError] = UnavailableError) -> None:
        self.failures = failures
        self.error = error
        self.num_plays = 0

    async def play(self, ticket: pb.Ticket) -> Played:
        self.num_plays += 1
        if self.failures:
            self.failures -= 1
            raise self.error("no replica serves")
        return Played([], pb.Episode(episode_id=ticket.ticket_id, round_id=ticket.round_id))


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> World:
    world = World(redis, tmp_path)
    await world.add_job(job_spec(), "running")
    await world.ledger.open_round(ROUND, pb.ROUND_KIND_TRAIN, 0, tickets(ROUND, 1))
    return world


@asynccontextmanager
async def playing(world: World, player: Any) -> AsyncIterator[EpisodeWorkers]:
    """One life of a router's workers."""
    found = EpisodeWorkers(
        world.redis, JOB, cast("EpisodePlayer", player), LIMITS, claim_idle_s=0.05
    )
    running = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=30)
        assert running.cancelled()


async def deliver_to_the_dead(world: World, times: int) -> None:
    """Workers take the ticket ``times`` times and are killed before they end it."""
    key, group = keys.tickets(JOB), keys.WORKERS_GROUP
    await world.redis.xgroup_create(key, group, id="0", mkstream=True)
    await world.redis.xreadgroup(group, "dead", {key: ">"})
    for _ in range(times - 1):
        await world.redis.xautoclaim(key, group, "dead", 0, start_id="0-0")


async def counts(world: World) -> tuple[int, int]:
    """(done, dropped) once the round is complete."""
    async with asyncio.timeout(30):
        while not (state := await world.ledger.round(ROUND)) or not state.is_complete:
            await world.ledger.wait_change(0.5)
    return state.num_done, state.num_dropped


async def test_ticket_when_its_workers_were_killed_more_than_max_attempts_then_is_played(
    world: World,
) -> None:
    await deliver_to_the_dead(world, 3 * MAX_ATTEMPTS - 1)
    async with playing(world, Player()):
        assert await counts(world) == (1, 0)


async def test_ticket_when_every_worker_dies_of_it_then_is_parked(world: World) -> None:
    await deliver_to_the_dead(world, 3 * MAX_ATTEMPTS)
    player = Player()
    async with playing(world, player) as workers:
        assert await counts(world) == (0, 1)
    assert player.num_plays == 0
    assert "6 times" in workers.last_drop
    assert await world.redis.xlen(keys.dead(keys.tickets(JOB))) == 1


async def test_ticket_when_playing_fails_then_failures_count_over_the_lives_of_routers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr(workers_module, "_LONGEST_PAUSE_S", 60.0)
    player = Player(failures=100)
    async with playing(world, player) as first, asyncio.timeout(30):
        while not first.last_failure:
            await world.ledger.wait_change(0.05)
    async with playing(world, player) as second:
        assert await counts(world) == (0, 1)
    assert player.num_plays == MAX_ATTEMPTS
    assert second.last_drop == "UNAVAILABLE: no replica serves"


async def test_ticket_when_the_routers_queue_is_full_then_it_waits_and_is_not_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_FIRST_PAUSE_S", 0.001)
    player = Player(failures=MAX_ATTEMPTS + 3, error=OverloadedError)
    async with playing(world, player):
        assert await counts(world) == (1, 0)
    assert player.num_plays == MAX_ATTEMPTS + 4


async def test_ticket_when_there_is_no_memory_to_read_it_then_is_played_when_there_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = EpisodeWorkers(
        world.redis, JOB, cast("EpisodePlayer", Player()), LIMITS, claim_idle_s=0.05
    )
    with monkeypatch.context() as patch:
        patch.setattr(workers_module, "pb", SimpleNamespace(Ticket=NoMemory))
        with pytest.raises(DecodeError):
            async with asyncio.timeout(30):
                await workers.run()
    assert await world.redis.exists(keys.dead(keys.tickets(JOB))) == 0
    async with playing(world, Player()):
        assert await counts(world) == (1, 0)


async def test_workers_when_their_ledger_breaks_then_the_error_ends_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = EpisodeWorkers(
        world.redis, JOB, cast("EpisodePlayer", Player()), LIMITS, claim_idle_s=5
    )

    async def broken(*_: Any) -> bool:
        raise UnavailableError("Redis does not answer")

    monkeypatch.setattr(workers._ledger, "complete_ticket", broken)
    with pytest.raises(UnavailableError, match="Redis does not answer"):
        async with asyncio.timeout(30):
            await workers.run()
