"""A Redis near its maxmemory: no step begins, the job says so, and goes on when there is room."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from job_world import JOB, World, job_spec, tickets
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError
from rest_world import rest_world, spec_document

from troupe.aio import cancel_all
from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.ids import train_round
from troupe.runtime.disk_space import Shortage
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.memory import RedisMemory
from troupe.runtime.streams.redis import connect
from troupe_router.conduct.lease import Lease
from troupe_router.members.registry import Registry
from troupe_router.members.store import MemberStore


@pytest.fixture
async def redis(own_valkey_server: Any) -> AsyncIterator[Redis]:
    client = await connect(own_valkey_server.url)
    # Beside it, what a connection takes is little.
    await client.setrange("ballast", (32 << 20) - 1, "x")  # made by the server, not in a buffer
    yield client
    await client.aclose()


async def fill(redis: Redis, part: float) -> None:
    """Set maxmemory so that about ``part`` of it is in use."""
    used = int((await redis.info("memory"))["used_memory"])
    await redis.config_set("maxmemory", int(used / part))


async def test_memory_when_used_and_given_back_then_is_short_meanwhile(redis: Redis) -> None:
    memory = RedisMemory()
    assert not await memory.look(redis)  # it has no limit yet
    await fill(redis, 0.95)
    assert await memory.look(redis)
    assert memory.shortage is not None
    assert "(maxmemory): no step begins above 90%" in memory.shortage.sentence
    assert "delete ended ones (`troupe delete`, `troupe jobs prune`)" in memory.shortage.sentence
    await fill(redis, 0.85)
    assert await memory.look(redis)  # who waits goes on only with some room in hand
    await fill(redis, 0.5)
    assert not await memory.look(redis)
    assert memory.shortage.ended_at >= memory.shortage.began_at


async def test_job_when_redis_fills_up_then_opens_no_step_until_there_is_room(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    record = await world.add_job(job_spec(steps=1), "running")
    await world.add_members(pb.REPLICA_KIND_TRAINER, pb.REPLICA_KIND_ENV, pb.REPLICA_KIND_ROLLOUT)
    await world.ledger.commit_version("p", 0, "d")
    await fill(redis, 0.93)
    await world.memory.look(redis)
    driving = asyncio.create_task(world.drive(record, within_s=60.0))
    try:
        await until_said(redis, "redis.low")
        assert await world.ledger.round(train_round(0)) is None
        await redis.config_set("maxmemory", 0)
        await world.memory.look(redis)
        async with asyncio.timeout(30):
            while await world.ledger.round(train_round(0)) is None:
                await world.ledger.wait_change(0.1)
        await until_said(redis, "redis.resolved")
    finally:
        await cancel_all(driving)


async def test_job_when_redis_is_full_then_is_recorded_and_cancelled_and_its_keys_go(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    await world.add_job(job_spec(steps=1), "running")
    ledger, round_id = world.ledger, train_round(0)
    await ledger.commit_version("p", 0, "d")
    [ticket] = tickets(round_id, 1)
    await ledger.open_round(round_id, records.ROUND_KIND_TRAIN, 0, [ticket])
    await ledger.drop_ticket(ticket, "", records.Episode(dropped_reason="no"))
    record = await world.store.transition(JOB, "cancelling")
    await fill(redis, 1.01)
    with pytest.raises(OutOfMemoryError):
        await redis.set("more", "more")

    assert await Lease(redis, JOB, "router-1", ttl_s=60).hold()
    await ledger.take("router", "router-1")
    await ledger.mark_recorded(round_id)
    assert not await redis.exists(keys.episodes(JOB, round_id), keys.round_done(JOB, round_id))
    await world.store.note(JOB, "a", 1)
    await ledger.set_result({})
    await ledger.fail("it failed")
    assert (await world.drive(record)).state == "cancelled"
    left = {key async for key in redis.scan_iter(keys.every_key_of(JOB))}
    assert left == {k.encode() for k in (keys.job(JOB), keys.events(JOB), keys.event_ids(JOB))}


async def test_replica_when_redis_is_full_then_its_heartbeats_are_taken(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    await world.add_job(job_spec(steps=1), "launching")
    members = MemberStore(redis, ttl_s=60)
    registry = Registry(redis, world.store, members)
    await fill(redis, 1.01)
    env = pb.Replica(replica_id="env-0", incarnation="1", kind=pb.REPLICA_KIND_ENV)
    await registry.heartbeat(env)  # it joins
    await redis.pexpire(keys.replica("env-0"), 30_000)
    await registry.heartbeat(env)  # it stays
    assert [m.job_id for m in await members.all()] == [JOB]
    assert await redis.pttl(keys.replica("env-0")) > 30_000
    with pytest.raises(OutOfMemoryError):
        await redis.set("more", "more")


async def test_rest_when_redis_is_full_then_submitting_says_so_and_jobs_can_be_ended_and_deleted(
    redis: Redis, tmp_path: Path
) -> None:
    async with rest_world(redis, tmp_path) as world:
        spec = spec_document(tmp_path)
        submitted = [await world.http.post("/v1/jobs", json=spec) for _ in range(2)]
        first, second = (f"/v1/jobs/{answer.json()['job_id']}" for answer in submitted)
        await fill(redis, 1.01)
        refused = await world.http.post("/v1/jobs", json=spec)
        assert refused.status_code == 429 and refused.json()["reason"] == "OVERLOADED"
        assert "Redis is full" in refused.json()["detail"]
        assert (await world.http.post(f"{first}/cancel")).status_code == 200
        assert (await world.http.post(f"{second}/pause")).status_code == 200
        assert (await world.http.delete(second)).status_code == 204


async def test_job_when_redis_was_full_for_longer_than_a_step_may_take_then_waits_its_own_time(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    record = await world.add_job(job_spec(steps=1), "running")
    await world.add_members(pb.REPLICA_KIND_TRAINER, pb.REPLICA_KIND_ENV, pb.REPLICA_KIND_ROLLOUT)
    await world.ledger.commit_version("p", 0, "d")
    world.memory.shortage = Shortage(time.time() - 1e6, "full")
    driving = asyncio.create_task(world.drive(record, within_s=60.0))
    try:
        ended, _ = await asyncio.wait({driving}, timeout=3.0)
        assert not ended
        await world.memory.look(redis)
        async with asyncio.timeout(30):
            while await world.ledger.round(train_round(0)) is None:
                await world.ledger.wait_change(0.1)
    finally:
        await cancel_all(driving)


async def until_said(redis: Redis, type: str) -> None:
    """Wait for the job's event."""
    log = EventLog(redis, JOB, source="test")
    async with asyncio.timeout(30):
        while type not in {s.event.type for s in await log.read(count=1000)}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
