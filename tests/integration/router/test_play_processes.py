"""One job whose tickets are played by several processes, as they come, die and are told to go."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import httpx
import pytest
from fleet_world import until
from grpc_health.v1 import health_pb2, health_pb2_grpc
from job_world import JOB
from play_world import ROUND, PlayProcess, PlayWorld, Serve, fresh, until_pending
from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.episodes.busy import busy_seconds
from troupe.runtime.streams import keys

Start = Callable[[str], PlayProcess]


@pytest.fixture
def start(tmp_path: Path, redis_url: str, free_port: Callable[[], int]) -> Iterator[Start]:
    """A function that starts a play process by name."""
    started: list[PlayProcess] = []

    def begin(name: str) -> PlayProcess:
        started.append(PlayProcess.start(name, redis_url, tmp_path, free_port))
        return started[-1]

    yield begin
    for process in started:
        process.stop()


@asynccontextmanager
async def playing(world: PlayWorld) -> AsyncIterator[None]:
    """Players in this process, as a router has them."""
    task = asyncio.create_task(world.players(claim_idle_s=1.0).run())
    try:
        yield
    finally:
        await cancel_all(task)


async def test_job_when_one_of_its_play_processes_is_killed_then_groups_are_those_of_one_process(
    redis: Redis, tmp_path: Path, grpc_servers: Serve, start: Start
) -> None:
    inside = await fresh(redis, tmp_path / "inside", grpc_servers)
    async with playing(inside):
        await inside.open_round()
        assert (await inside.played()).num_dropped == 0
    expected, calls = await inside.groups(), inside.rollout.calls
    assert len(expected) == len(set(expected)) > inside.num_tickets

    world = await fresh(redis, tmp_path / "outside", grpc_servers)
    world.rollout.answer_s = 0.2
    victim, survivor = start("one"), start("two")
    await world.open_round()
    await until_pending(world, "one", "two")
    victim.process.send_signal(signal.SIGKILL)
    state = await world.played()
    assert (state.num_done, state.num_dropped) == (world.num_tickets, 0)
    assert await world.groups() == expected
    assert world.rollout.calls >= calls
    episodes = await world.ledger.episodes(ROUND)
    assert len({episode.episode_id for episode in episodes}) == len(episodes) == world.num_tickets
    busy = busy_seconds(episodes)
    assert 0.2 <= busy.generate <= 45
    assert survivor.process.poll() is None


async def test_play_process_when_asked_then_tells_health_and_metrics_and_drains_on_sigterm(
    redis: Redis, tmp_path: Path, grpc_servers: Serve, start: Start
) -> None:
    world = await fresh(redis, tmp_path, grpc_servers, in_flight=2)
    world.rollout.answer_s = 0.3
    process = start("one")
    await world.open_round()
    await until_pending(world, "one")
    async with httpx.AsyncClient(base_url=f"http://{process.admin}", trust_env=False) as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        metrics = (await client.get("/metrics")).text
    assert f'troupe_router_in_flight_episodes{{job_id="{JOB}"}} 2.0' in metrics
    async with grpc.aio.insecure_channel(process.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    process.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.process.wait, 30) == 0, process.log.read_text()
    state = await world.state()
    assert 1 <= state.num_done < world.num_tickets
    assert await world.pending() == {"one": 0}


async def test_job_when_it_is_over_then_players_leave_it_and_make_no_key_of_it_again(
    redis: Redis, tmp_path: Path, grpc_servers: Serve
) -> None:
    world = await fresh(redis, tmp_path, grpc_servers)
    async with playing(world):
        await world.open_round()
        await world.played()
        await world.store.transition(JOB, "failed")
        await world.ledger.delete()
        await asyncio.sleep(1.5)  # several looks, and longer than a blocked read
        found = {key.decode() for key in await redis.keys(f"*{JOB}*")}
    assert found <= {keys.job(JOB), keys.events(JOB), keys.event_ids(JOB), *_of_replicas(found)}


def _of_replicas(found: set[str]) -> set[str]:
    return {key for key in found if key.startswith("troupe:replica:")}


async def test_job_when_it_is_paused_and_begins_a_new_life_then_is_left_and_picked_up(
    redis: Redis, tmp_path: Path, grpc_servers: Serve
) -> None:
    world = await fresh(redis, tmp_path, grpc_servers, in_flight=3)
    world.rollout.answer_s = 30.0
    async with playing(world):
        await world.open_round()
        await until(lambda: world.rollout.calls == 3)
        for state in ("pausing", "paused"):
            await world.store.transition(JOB, state)  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            await world.released()
        assert world.rollout.calls == 3
        world.rollout.answer_s = 0.0
        record = await world.store.get(JOB)
        await redis.hset(keys.job(JOB), "life", str(record.life + 1))
        for state in ("queued", "launching", "running"):
            await world.store.transition(JOB, state)  # type: ignore[arg-type]
        state = await world.played()
    assert (state.num_done, state.num_dropped) == (world.num_tickets, 0)
