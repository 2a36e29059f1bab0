"""What is told when replicas leave, and which steps are marked as interrupted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from job_world import JOB, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe_router.jobs.record import JobRecord
from troupe_router.members.store import Member, MemberStore
from troupe_router.run.recorder import Recorder

ROUND = "train-00000"


@pytest.fixture
def world(redis: Redis, tmp_path: Path) -> World:
    return World(redis, tmp_path / "runs")


async def events(world: World, type: str) -> list[dict[str, Any]]:
    found = await EventLog(world.redis, JOB, source="t").read()
    return [json.loads(e.event.data_json) for e in found if e.event.type == type]


def env(seen_at: float) -> pb.Replica:
    return pb.Replica(replica_id="env-0", kind=pb.REPLICA_KIND_ENV, address="h:1", seen_at=seen_at)


async def expire(world: World, seen_at: float) -> MemberStore:
    """A member whose lease is over; a store that looks at it."""
    short = MemberStore(world.redis, ttl_s=0.001)
    await short.put(Member(env(seen_at), JOB))
    async with asyncio.timeout(30):
        while await world.redis.exists(keys.replica("env-0")):
            pass
    return short


async def test_replica_when_its_lease_expires_then_left_is_told_once(world: World) -> None:
    await world.add_job(job_spec(steps=1), "running")
    short = await expire(world, 1.5)
    other = MemberStore(world.redis, ttl_s=1)
    assert await asyncio.gather(short.all(), other.all(), short.all()) == [[], [], []]
    left = {
        "replica_id": "env-0",
        "kind": "env",
        "address": "h:1",
        "seen_at": 1.5,
        "reason": "its lease expired",
    }
    assert await events(world, "replica.left") == [left]
    assert await world.redis.hlen(keys.LAST_WORK) == 0
    await (await expire(world, 9.0)).all()
    assert [e["seen_at"] for e in await events(world, "replica.left")] == [1.5, 9.0]


async def test_replica_when_its_job_was_deleted_then_nothing_of_the_job_comes_back(
    world: World,
) -> None:
    await world.add_job(job_spec(steps=1), "running")
    await world.store.transition(JOB, "failed")
    short = await expire(world, 1.5)
    await world.store.remove(JOB)
    assert await short.all() == []
    assert await world.redis.hlen(keys.LAST_WORK) == 0
    assert await world.redis.keys(f"*{JOB}*") == []


async def test_replica_when_it_had_no_work_then_nothing_is_told(world: World) -> None:
    short = MemberStore(world.redis, ttl_s=0.001)
    await short.put(Member(env(1.0)))
    async with asyncio.timeout(30):
        while await world.redis.exists(keys.replica("env-0")):
            pass
    assert await short.all() == []
    assert await world.redis.keys("*events*") == []


async def test_replica_when_its_process_ended_then_left_is_told_with_the_reason(
    world: World,
) -> None:
    await world.add_job(job_spec(steps=1), "running")
    members = MemberStore(world.redis, ttl_s=60)
    await members.put(Member(env(2.0), JOB))
    await members.remove(["env-0", "never-was"], reason="its process ended")
    assert [e["reason"] for e in await events(world, "replica.left")] == ["its process ended"]
    assert await members.all() == []


def recorder(world: World, job: JobRecord) -> Recorder:
    log = EventLog(world.redis, JOB, source="router")
    return Recorder(job, world.ledger, world.store, log, fraction=1.0)


async def play_step(world: World, job: JobRecord) -> Recorder:
    """A recorder that has recorded the round of step 0, which the trainer has not learned."""
    found = recorder(world, job)
    await found.rewind(0)
    await asyncio.sleep(0.01)  # the start is before the step, not in it
    (ticket,) = tickets(ROUND, 1)
    await world.ledger.open_round(ROUND, records.ROUND_KIND_TRAIN, 0, [ticket])
    episode = records.Episode(episode_id=ticket.ticket_id, round_id=ROUND, step=0)
    await world.ledger.complete_ticket(ticket, "", [], episode)
    state = await world.ledger.round(ROUND)
    assert state is not None
    await found.record(state)
    return found


async def end_step(world: World, found: Recorder) -> dict[str, Any]:
    log = EventLog(world.redis, JOB, source="trainer")
    await log.emit("step.learned", {"step": 0, "phases": {"learn": 0.1}, "ratio_mean": None})
    await found.learned(0)
    await found.finish()
    (line,) = found.lines
    assert [e["step"] for e in await events(world, "step.recorded")] == [0]
    return line


async def test_step_when_nothing_happened_then_is_not_interrupted(world: World) -> None:
    job = await world.add_job(job_spec(steps=1), "running")
    line = await end_step(world, await play_step(world, job))
    assert line["interrupted"] is False
    assert line["ratio_mean"] is None


async def test_step_when_a_process_restarted_meanwhile_then_is_interrupted(world: World) -> None:
    job = await world.add_job(job_spec(steps=1), "running")
    found = await play_step(world, job)
    await EventLog(world.redis, JOB, source="router").emit("component.restarted", {"name": "env-0"})
    assert (await end_step(world, found))["interrupted"] is True


async def test_step_when_the_router_restarted_meanwhile_then_is_interrupted(world: World) -> None:
    job = await world.add_job(job_spec(steps=1), "running")
    await play_step(world, job)
    successor = recorder(world, job)
    await successor.rewind(0)
    assert (await end_step(world, successor))["interrupted"] is True
