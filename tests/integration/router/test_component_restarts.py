"""Deaths of a job's processes are told, each once, whoever conducts the job."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from job_world import JOB, World, job_spec
from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.runtime.launch.launcher import Component
from troupe.runtime.launch.local import LocalLauncher, RestartPolicy
from troupe.runtime.streams.events import EventLog
from troupe_router.conduct import components
from troupe_router.conduct.components import JobComponents
from troupe_router.jobs.record import JobRecord
from troupe_router.settings import RouterSettings


@pytest.fixture
async def job(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[World, JobRecord, LocalLauncher]]:
    """A job whose one process dies at once, and is not started again while the test runs."""
    dies = [Component("env-0", "", argv=["/bin/sh", "-c", "exit 7"])]
    monkeypatch.setattr(components, "components", lambda *_, **__: dies)
    world = World(redis, tmp_path / "runs")
    restarts = RestartPolicy(first_s=600.0, longest_s=600.0)
    launcher = LocalLauncher(world.runs_dir, restarts=restarts)
    yield world, await world.add_job(job_spec(steps=1), "running"), launcher
    await launcher.stop(JOB, grace_s=0.0)


async def test_process_when_it_dies_again_after_the_platform_was_down_then_each_death_is_told(
    job: tuple[World, JobRecord, LocalLauncher],
) -> None:
    world, record, launcher = job
    await conducted(world, record, launcher, num_deaths=1)
    await conducted(world, record, launcher, num_deaths=1)  # a router that adopts the processes
    first = await conducted(world, record, launcher, num_deaths=1)
    await first.stop()  # troupe down
    await conducted(world, record, launcher, num_deaths=2)


async def conducted(
    world: World, record: JobRecord, launcher: LocalLauncher, *, num_deaths: int
) -> JobComponents:
    """Keep the job's processes until a controller has told ``num_deaths``, and a while longer."""
    events = EventLog(world.redis, JOB, source="router")
    settings = RouterSettings(runs_dir=world.runs_dir, reconcile_s=0.05)
    keeper = JobComponents(record, settings, launcher, world.members, events, router="r:1")
    keeping = asyncio.create_task(keeper.keep())
    try:
        async with asyncio.timeout(20):
            while len(await deaths(events)) < num_deaths:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert await deaths(events) == [("env-0", 7, 1)] * num_deaths
    finally:
        await cancel_all(keeping)
    return keeper


async def deaths(events: EventLog) -> list[tuple[Any, ...]]:
    stored = [s.event for s in await events.read(count=1000)]
    told = [json.loads(e.data_json) for e in stored if e.type == "component.restarted"]
    return [(data["name"], data["exit_code"], data["restarts"]) for data in told]
