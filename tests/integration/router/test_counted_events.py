"""Events are counted once: in the life of the job that they happened in, its end included."""

import time
from dataclasses import replace
from pathlib import Path

from job_world import JOB, World, job_spec
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from troupe.runtime.streams.events import EventLog
from troupe_router.jobs.record import JobRecord
from troupe_router.run import job_metrics
from troupe_router.run.recorder import Recorder

REFUSED = {"job_id": JOB, "policy": "p", "cause": "canary"}


def refused() -> float | None:
    return REGISTRY.get_sample_value("troupe_job_pushes_refused_total", REFUSED)


async def conducted(world: World, record: JobRecord) -> Recorder:
    """What a controller does with the events that are there when it begins."""
    job_metrics.begin(JOB, 3, ["p"])
    log = EventLog(world.redis, JOB, source="router")
    recorder = Recorder(record, world.ledger, world.store, log, fraction=1.0)
    await recorder.rewind(0)
    return recorder


async def test_refused_push_when_the_job_is_resumed_then_is_not_counted_again(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    record = await world.add_job(job_spec(steps=3), "running")
    log = EventLog(redis, JOB, source="trainer")
    await log.emit("weights.refused", {"policy": "p", "cause": "canary"})
    before = refused() or 0.0
    await conducted(world, replace(record, started_at=time.time() - 60.0))
    assert refused() == before + 1
    await conducted(world, replace(record, started_at=time.time() + 60.0))
    assert refused() == before + 1


async def test_refused_push_when_another_controller_takes_over_here_then_is_not_counted_again(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    record = replace(
        await world.add_job(job_spec(steps=3), "running"), started_at=time.time() - 60.0
    )
    log = EventLog(redis, JOB, source="trainer")
    await log.emit("weights.refused", {"policy": "p", "cause": "canary"})
    before = refused() or 0.0
    await conducted(world, record)
    await log.emit("weights.refused", {"policy": "p", "cause": "canary"})
    await conducted(world, record)  # as after a time without Redis
    assert refused() == before + 2


async def test_refused_push_when_the_clock_was_set_back_then_is_counted(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    record = await world.add_job(job_spec(steps=3), "running")
    recorder = await conducted(world, replace(record, started_at=time.time() + 3600.0))
    before = refused() or 0.0
    log = EventLog(redis, JOB, source="trainer")
    await log.emit("weights.refused", {"policy": "p", "cause": "canary"})
    await recorder.catch_up(0)
    assert refused() == before + 1


async def test_refused_push_when_it_ends_the_job_then_is_counted(
    redis: Redis, tmp_path: Path
) -> None:
    world = World(redis, tmp_path / "runs")
    recorder = await conducted(world, await world.add_job(job_spec(steps=3), "running"))
    before = refused() or 0.0
    log = EventLog(redis, JOB, source="trainer")
    await log.emit("weights.refused", {"policy": "p", "cause": "canary"})
    await recorder.catch_up(0)  # the end of the job, and nobody has listened in between
    assert refused() == before + 1
