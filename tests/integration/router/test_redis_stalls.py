"""Redis does not answer for longer than a command waits: no play is lost, and none is repeated."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fleet_world import until
from play_world import PlayWorld, Serve, fresh
from redis.asyncio import Redis

import troupe.runtime.streams.redis as redis_module
from troupe.aio import cancel_all
from troupe.runtime.streams.redis import connect
from troupe_router.jobs.store import JobStore
from troupe_router.members.store import MemberStore
from troupe_router.play.job_player import PlayOptions
from troupe_router.play.players import Players

STALL_S = 4.0
TIMEOUT_S = 1.5
"""Longer than the players' blocking reads, and shorter than the stall."""


@pytest.fixture
async def impatient(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Redis]:
    """A client whose commands fail long before the stall is over."""
    monkeypatch.setattr(redis_module, "SOCKET_TIMEOUT_S", TIMEOUT_S)
    client = await connect(redis_url, connect_for_s=10, retry_for_s=0.1)
    yield client
    await client.aclose()


async def play_all(world: PlayWorld, client: Redis, *, stall: bool) -> int:
    """Play the round through ``client``; how many Generate calls that took."""
    store, members = JobStore(client), MemberStore(client, ttl_s=60)
    playing = asyncio.create_task(
        Players(client, store, members, PlayOptions(claim_idle_s=60.0)).run()
    )
    try:
        await world.open_round()
        await until(lambda: world.rollout.calls > 0)
        if stall:
            await world.redis.execute_command("CLIENT", "PAUSE", round(1000 * STALL_S), "ALL")
        state = await world.played(within_s=50)
    finally:
        await cancel_all(playing)
    assert (state.num_done, state.num_dropped) == (world.num_tickets, 0)
    assert state.last_failure == ""
    return world.rollout.calls


async def test_redis_when_it_stalls_beyond_every_timeout_then_plays_go_on_and_none_is_repeated(
    redis: Redis,
    impatient: Redis,
    tmp_path: Path,
    grpc_servers: Serve,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calm = await fresh(redis, tmp_path / "calm", grpc_servers, in_flight=8)
    calls = await play_all(calm, impatient, stall=False)
    groups = await calm.groups()
    capsys.readouterr()

    world = await fresh(redis, tmp_path / "stalled", grpc_servers, in_flight=8)
    world.rollout.answer_s = 0.3
    assert await play_all(world, impatient, stall=True) == calls
    assert await world.groups() == groups
    log = capsys.readouterr().out
    assert "redis.does_not_answer" in log  # commands did fail
    assert "play.interrupted" not in log
