"""A router that stood still while another one took its job up: nothing of the job changes by it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from job_world import JOB, IdleLauncher, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.api.records.v1 import records_pb2 as records
from troupe.errors import ConflictError, FencedError
from troupe.ids import train_round
from troupe.runtime.launch.launcher import Component, ComponentStatus
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe_router.conduct.controller import JobController
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import JobState
from troupe_router.run.events_file import kept_events

ROUND = train_round(0)


@pytest.fixture
def world(redis: Redis, tmp_path: Path) -> World:
    return World(redis, tmp_path / "runs")


class FrozenLauncher(IdleLauncher):
    """Its trainer can't run; ending the processes takes until ``go``."""

    def __init__(self) -> None:
        self.stopping, self.go = asyncio.Event(), asyncio.Event()

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        return [ComponentStatus(c.name, "failed", None, 0, 3, "cannot run") for c in desired]

    async def stop(self, owner: str, *, grace_s: float) -> None:
        self.stopping.set()
        await self.go.wait()


async def freeze(world: World, record: JobRecord) -> tuple[FrozenLauncher, asyncio.Task[None]]:
    """A controller of the job that stands still where it ends the processes."""
    world.launcher = launcher = FrozenLauncher()
    controller = JobController(world.parts(), record)
    frozen = asyncio.create_task(controller.run())
    async with asyncio.timeout(20):
        await launcher.stopping.wait()
    return launcher, frozen


async def test_router_when_it_stood_still_at_the_end_of_a_job_then_the_job_goes_on_elsewhere(
    world: World,
) -> None:
    record = await world.add_job(job_spec(steps=1), "running")
    launcher, frozen = await freeze(world, record)
    successor = StepLedger(world.redis, JOB)
    await successor.take("router", "the other router")
    opened = tickets(ROUND, 3)
    await successor.open_round(ROUND, records.ROUND_KIND_TRAIN, 0, opened)
    launcher.go.set()
    with pytest.raises(FencedError, match="taken over by the other router"):
        await frozen
    assert (await world.store.get(JOB)).state == "running"
    assert await successor.round(ROUND) is not None
    await successor.check()


@pytest.mark.parametrize("state", ["pausing", "cancelling"])
async def test_router_when_it_stood_still_and_the_job_waits_for_a_new_life_then_it_still_waits(
    world: World, state: JobState
) -> None:
    await world.add_job(job_spec(steps=1), "running")
    launcher, frozen = await freeze(world, await world.store.transition(JOB, state))
    # The other router ends what the user asked for, and the user resumes the job.
    await StepLedger(world.redis, JOB).take("router", "the other router")
    await world.store.transition(JOB, "paused" if state == "pausing" else "cancelled")
    await world.store.transition(JOB, "queued")
    launcher.go.set()
    with pytest.raises(FencedError):
        await frozen
    assert (await world.store.get(JOB)).state == "queued"


async def test_router_when_the_one_before_it_ended_the_job_at_the_last_moment_then_leaves_it(
    world: World,
) -> None:
    record = await world.add_job(job_spec(steps=1), "running")
    await world.store.transition(JOB, "failed", reason="it ended")
    ended = await world.drive(record, within_s=20)
    assert (ended.state, ended.reason) == ("failed", "it ended")
    assert not (record.run_dir / "summary.json").exists()


async def test_router_when_killed_right_after_it_ended_a_job_then_nothing_is_left_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await world.add_job(job_spec(steps=1), "running")
    opened = tickets(ROUND, 3)
    await world.ledger.open_round(ROUND, records.ROUND_KIND_TRAIN, 0, opened)
    episode = records.Episode(episode_id=opened[0].ticket_id, round_id=ROUND)
    await world.ledger.complete_ticket(opened[0], "", [records.Group(policy="p")], episode)
    ended, whole = asyncio.Event(), world.store.transition

    async def killed_after(job_id: str, to: JobState, **more: Any) -> JobRecord:
        record = await whole(job_id, to, **more)
        ended.set()
        await asyncio.Event().wait()
        return record

    await world.ledger.fail("it can't go on")
    await EventLog(world.redis, JOB, source="trainer").emit("step.learned", {"step": 0})
    monkeypatch.setattr(world.store, "transition", killed_after)
    router = asyncio.create_task(JobController(world.parts(), record).run())
    async with asyncio.timeout(30):
        await ended.wait()
    await cancel_all(router)
    assert (await world.store.get(JOB)).state == "failed"
    left = {key.decode() for key in await world.redis.keys(f"*{JOB}*")}
    assert left == {keys.job(JOB), keys.events(JOB), keys.event_ids(JOB)}
    assert [stored.event.type for stored in kept_events(record.run_dir, JOB)] == ["step.learned"]


@pytest.mark.parametrize("to", ["running", "paused", "failed"])
async def test_change_of_state_when_its_answer_is_lost_and_it_is_sent_again_then_is_made_once(
    world: World, monkeypatch: pytest.MonkeyPatch, to: JobState
) -> None:
    await world.add_job(job_spec(steps=1), "launching")
    if to == "paused":
        await world.store.transition(JOB, "pausing")
    fence = await world.ledger.take("router", "a router")
    await world.ledger.commit_version("p", 0, "d")
    deleting = await world.ledger.every_key() if to == "failed" else []
    whole = world.redis.eval

    async def twice(*args: Any) -> Any:
        await whole(*args)
        return await whole(*args)

    monkeypatch.setattr(world.redis, "eval", twice)
    changed = await world.store.transition(JOB, to, fence=fence, deleting=deleting)
    assert changed.state == to
    assert f'"{to}"' in (changed.run_dir / "job.json").read_text()
    left = {key.decode() for key in await world.redis.keys(f"*{JOB}*")}
    assert (left == {keys.job(JOB)}) == (to == "failed")


async def test_change_of_state_when_the_job_is_in_another_state_then_refused(world: World) -> None:
    await world.add_job(job_spec(steps=1), "running")
    fence = await world.ledger.take("router", "a router")
    await world.store.transition(JOB, "cancelling")
    with pytest.raises(ConflictError, match="is cancelling; it cannot become running"):
        await world.store.transition(JOB, "running", fence=fence)
