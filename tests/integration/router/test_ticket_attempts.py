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
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.player import EpisodePlayer, Played
from troupe.episodes.ports import Start
from troupe.errors import OverloadedError, ProgramTimeoutError, TroupeError, UnavailableError
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import RoundState
from troupe.spec.job import LimitsSpec
from troupe_router.play import workers as workers_module
from troupe_router.play.workers import EpisodeWorkers

ROUND = "train-00000"
MAX_ATTEMPTS = 2
LIMITS = LimitsSpec(max_attempts=MAX_ATTEMPTS)


class Player:
    """Plays each ticket at once, or fails while ``failures`` are left."""

    def __init__(self, failures: int = 0, error: type[Exception] = UnavailableError) -> None:
        self.failures = failures
        self.error = error
        self.num_plays = 0

    async def play(self, ticket: pb.Ticket, *, start: Start | None = None) -> Played:
        self.num_plays += 1
        if self.failures:
            self.failures -= 1
            raise self.error("no replica serves")
        return Played([], pb.Episode(episode_id=ticket.ticket_id, round_id=ticket.round_id))


class HeldPlayer(Player):
    """Says when it has begun a ticket, and plays it when it is let."""

    def __init__(self, failures: int = 0, error: type[Exception] = UnavailableError) -> None:
        super().__init__(failures, error)
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def play(self, ticket: pb.Ticket, *, start: Start | None = None) -> Played:
        self.began.set()
        await self.go_on.wait()
        return await super().play(ticket)


@pytest.fixture
async def world(redis: Redis, tmp_path: Path) -> World:
    world = World(redis, tmp_path)
    await world.add_job(job_spec(), "running")
    await world.ledger.open_round(ROUND, pb.ROUND_KIND_TRAIN, 0, tickets(ROUND, 1))
    return world


@asynccontextmanager
async def playing(
    world: World, player: Any, claim_idle_s: float = 0.05, limits: LimitsSpec = LIMITS
) -> AsyncIterator[EpisodeWorkers]:
    """One life of a process's workers."""
    workers = EpisodeWorkers(
        world.redis, JOB, cast("EpisodePlayer", player), limits, claim_idle_s=claim_idle_s
    )
    running = asyncio.create_task(workers.run())
    try:
        yield workers
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


async def state_of(world: World) -> RoundState:
    """The round now, whoever plays it."""
    state = await world.ledger.round(ROUND)
    assert state is not None
    return state


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
    async with playing(world, player):
        assert await counts(world) == (0, 1)
    assert player.num_plays == 0
    assert "6 times" in (await state_of(world)).last_drop
    assert await world.redis.xlen(keys.dead(keys.tickets(JOB))) == 1


async def test_ticket_when_playing_fails_then_failures_count_over_the_lives_of_routers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr(workers_module, "_LONGEST_PAUSE_S", 60.0)
    player = Player(failures=100)
    async with playing(world, player), asyncio.timeout(30):
        while not (await state_of(world)).last_failure:
            await world.ledger.wait_change(0.05)
    async with playing(world, player):
        assert await counts(world) == (0, 1)
    assert player.num_plays == MAX_ATTEMPTS
    assert (await state_of(world)).last_drop == "UNAVAILABLE: no replica serves"


async def test_ticket_when_its_program_fails_then_each_attempt_is_counted_in_the_episode(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_FIRST_PAUSE_S", 0.001)
    for failures, counted in ((1, (1, 0)), (100, (0, 1))):
        async with playing(world, Player(failures, ProgramTimeoutError)):
            assert await counts(world) == counted
        [episode] = await world.ledger.episodes(ROUND)
        assert dict(episode.program_ends) == {"timeout": min(failures, MAX_ATTEMPTS)}
        await world.redis.flushall()
        await world.ledger.open_round(ROUND, pb.ROUND_KIND_TRAIN, 0, tickets(ROUND, 1))


async def test_ticket_when_the_routers_queue_is_full_then_it_waits_and_is_not_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_FIRST_PAUSE_S", 0.001)
    player = Player(failures=MAX_ATTEMPTS + 3, error=OverloadedError)
    async with playing(world, player):
        assert await counts(world) == (1, 0)
    assert player.num_plays == MAX_ATTEMPTS + 4


async def test_ticket_when_the_machine_is_short_of_memory_then_it_waits_and_counts_no_delivery(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_FIRST_PAUSE_S", 0.001)
    player = Player(failures=3 * MAX_ATTEMPTS + 2, error=MemoryError)
    async with playing(world, player):
        assert await counts(world) == (1, 0)
    assert player.num_plays == 3 * MAX_ATTEMPTS + 3


async def test_ticket_when_the_machine_stays_short_then_it_is_left_to_others_and_they_go_on(
    world: World,
) -> None:
    player = Player(failures=3, error=MemoryError)
    async with playing(world, player, limits=LIMITS.model_copy(update={"step_timeout_s": 0.06})):
        assert await counts(world) == (1, 0)
    assert player.num_plays == 4


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


@pytest.mark.parametrize("error", [UnavailableError("Redis does not answer"), MemoryError()])
async def test_ticket_when_redis_or_memory_is_away_for_a_while_then_its_play_is_kept_and_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    player = Player()
    failures = 3
    async with playing(world, player, claim_idle_s=5) as workers:
        store = workers._ledger.complete_ticket

        async def away_at_first(*args: Any) -> bool:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise error
            return await store(*args)

        monkeypatch.setattr(workers._ledger, "complete_ticket", away_at_first)
        assert await counts(world) == (1, 0)
    assert (failures, player.num_plays) == (-1, 1)


async def test_ticket_when_redis_stays_away_then_it_is_left_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Player()
    workers = EpisodeWorkers(
        world.redis,
        JOB,
        cast("EpisodePlayer", player),
        LIMITS,
        claim_idle_s=0.2,
        redis_away_s=0.3,
    )
    store, refused = workers._ledger.complete_ticket, tickets(ROUND, 1)[0].ticket_id

    async def away(ticket: pb.Ticket, *rest: Any) -> bool:
        if ticket.ticket_id == refused and player.num_plays < 4:
            raise UnavailableError("Redis does not answer")
        return await store(ticket, *rest)

    monkeypatch.setattr(workers._ledger, "complete_ticket", away)
    running = asyncio.create_task(workers.run())
    try:
        await world.ledger.open_round("train-00001", pb.ROUND_KIND_TRAIN, 1, others())
        assert await counts(world) == (1, 0)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=30)
    assert player.num_plays >= 4


def others() -> list[pb.Ticket]:
    """Tickets of another round, played beside the one that Redis does not take."""
    return tickets("train-00001", 2, step=1)


async def test_workers_when_redis_refuses_then_the_error_ends_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = EpisodeWorkers(
        world.redis, JOB, cast("EpisodePlayer", Player()), LIMITS, claim_idle_s=5
    )

    async def refused(*_: Any) -> bool:
        raise TroupeError("Redis refused the completion")

    monkeypatch.setattr(workers._ledger, "complete_ticket", refused)
    with pytest.raises(TroupeError, match="Redis refused"):
        async with asyncio.timeout(30):
            await workers.run()


@pytest.mark.parametrize("failures", [0, 1])
async def test_ticket_when_another_player_ended_it_meanwhile_then_is_not_counted_again(
    failures: int, world: World
) -> None:
    def counted() -> list[float | None]:
        labels = [{"job_id": JOB, "outcome": outcome} for outcome in ("done", "dropped")]
        return [REGISTRY.get_sample_value("troupe_router_tickets_total", of) for of in labels]

    [ticket] = tickets(ROUND, 1)
    episode = pb.Episode(episode_id=ticket.ticket_id, round_id=ROUND)
    player = HeldPlayer(failures, ValueError)
    async with playing(world, player, claim_idle_s=3600) as workers:
        before = counted()
        async with asyncio.timeout(30):
            await player.began.wait()
            assert await world.ledger.complete_ticket(ticket, "0-1", [], episode)
            player.go_on.set()
            await workers.drain()
    assert counted() == before


async def test_ticket_when_its_player_leaves_then_the_next_claims_it_at_once(
    world: World,
) -> None:
    began = asyncio.Event()

    class Endless(Player):
        async def play(self, ticket: pb.Ticket, *, start: Start | None = None) -> Played:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with playing(world, Endless(), claim_idle_s=3600):
        async with asyncio.timeout(30):
            await began.wait()
    async with playing(world, Player(), claim_idle_s=3600):
        assert await counts(world) == (1, 0)


async def test_workers_when_draining_then_what_they_play_ends_and_nothing_else_is_claimed(
    world: World,
) -> None:
    player = HeldPlayer()
    async with playing(world, player, claim_idle_s=5) as workers, asyncio.timeout(30):
        await player.began.wait()
        draining = asyncio.create_task(workers.drain())
        await world.ledger.open_round("train-00001", pb.ROUND_KIND_TRAIN, 1, others())
        await asyncio.sleep(0)
        assert not draining.done()
        player.go_on.set()
        await draining
        assert await counts(world) == (1, 0)
        later = await world.ledger.round("train-00001")
        assert later is not None and later.num_done == 0
