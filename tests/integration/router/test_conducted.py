"""Limits of time and the time in which nobody conducts a job: a pause, or no router."""

import asyncio
import time
from pathlib import Path

import pytest
from job_world import JOB, IdleLauncher, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.errors import FencedError
from troupe.ids import train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger
from troupe_router.conduct import conducted
from troupe_router.conduct.conducted import NOTE


@pytest.fixture
def world(redis: Redis, tmp_path: Path) -> World:
    return World(redis, tmp_path / "runs")


class StopWatch(IdleLauncher):
    """Says after how many seconds the job's processes were ended."""

    def __init__(self) -> None:
        self._began, self.ended_after_s = time.monotonic(), 0.0

    async def stop(self, owner: str, *, grace_s: float) -> None:
        self.ended_after_s = time.monotonic() - self._began


_UNPLAYABLE = {"step_timeout_s": 3.0, "env_timeout_s": 0.3, "max_attempts": 50}


async def _open_long_ago(world: World) -> None:
    """Step 0, opened two hours ago, with nothing played."""
    await world.ledger.commit_version("p", 0, "d")
    await world.ledger.open_round(
        train_round(0), records.ROUND_KIND_TRAIN, 0, tickets(train_round(0), 3)
    )
    opened_at = str(time.time() - 7200)
    await world.redis.hset(keys.round_state(JOB, train_round(0)), "opened_at", opened_at)


async def test_job_when_it_was_paused_for_longer_than_a_step_may_take_then_the_step_has_its_time(
    world: World,
) -> None:
    await world.add_job(job_spec(steps=1, limits=_UNPLAYABLE), "running")
    await _open_long_ago(world)
    await world.add_members(pb.REPLICA_KIND_TRAINER, pb.REPLICA_KIND_ENV, pb.REPLICA_KIND_ROLLOUT)
    paused = await world.drive(await world.store.transition(JOB, "pausing"))
    assert paused.state == "paused"
    await world.store.transition(JOB, "queued")
    record = await world.store.transition(JOB, "launching")
    # The router before this one died while the replicas came up.
    note = {"since": time.time() - 7200, "until": time.time()}
    await world.store.note(JOB, NOTE, note)
    world.launcher = watch = StopWatch()
    ended = await world.drive(record)
    assert "limits.step_timeout_s = 3 s for 3 of 3 tickets of train-00000" in ended.reason
    assert watch.ended_after_s > 3.0


@pytest.mark.parametrize("away_s", [None, 3600.0])
async def test_job_when_no_router_was_there_for_long_then_its_step_has_its_time(
    world: World, away_s: float | None
) -> None:
    record = await world.add_job(job_spec(steps=1, limits=_UNPLAYABLE), "running")
    await _open_long_ago(world)
    if away_s:
        now = time.time()
        await world.store.note(JOB, NOTE, {"since": now - 7200, "until": now - away_s})
    world.launcher, began_at = (watch := StopWatch()), time.time()
    ended = await world.drive(record)
    assert "limits.step_timeout_s = 3 s for 3 of 3 tickets of train-00000" in ended.reason
    assert watch.ended_after_s > 3.0
    # The next router, had this one died, would count from here on.
    assert (await world.store.notes(JOB))[NOTE]["since"] >= began_at


async def test_job_when_a_router_was_away_for_seconds_then_the_time_of_its_step_goes_on(
    world: World,
) -> None:
    limits = {**_UNPLAYABLE, "step_timeout_s": 600.0}
    record = await world.add_job(job_spec(steps=1, limits=limits), "running")
    await _open_long_ago(world)
    now = time.time()
    await world.store.note(JOB, NOTE, {"since": now - 7200, "until": now - 5})
    assert "limits.step_timeout_s = 600 s" in (await world.drive(record)).reason


async def test_job_when_no_router_was_there_at_its_start_then_its_services_have_their_time(
    world: World,
) -> None:
    await world.add_job(job_spec(limits={"startup_timeout_s": 3.0}), "launching")
    await world.redis.hset(keys.job(JOB), "started_at", str(time.time() - 3600))
    world.launcher = watch = StopWatch()
    ended = await world.drive(await world.store.get(JOB))
    assert "limits.startup_timeout_s = 3 s" in ended.reason
    assert watch.ended_after_s > 3.0


async def test_conducted_when_time_passes_then_it_is_noted_until_another_router_takes_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conducted, "_EVERY_S", 0.01)
    await world.add_job(job_spec(steps=1), "running")
    await world.ledger.take("router", "one")
    term = conducted.Conducted(world.store, world.ledger, JOB)
    await term.begin()
    first = (await world.store.notes(JOB))[NOTE]
    keeping = asyncio.create_task(term.keep())
    async with asyncio.timeout(20):
        while (noted := (await world.store.notes(JOB))[NOTE]) == first:
            assert not keeping.done()
        assert noted["since"] == first["since"] < noted["until"]
        await StepLedger(world.redis, JOB).take("router", "two")
        with pytest.raises(FencedError):
            await keeping


async def test_conducted_when_something_holds_the_job_back_then_the_ledger_counts_from_its_end(
    world: World,
) -> None:
    await world.add_job(job_spec(steps=1), "running")
    held_at = [0.0]
    term = conducted.Conducted(world.store, world.ledger, JOB, held_at=lambda: held_at[0])
    now = time.time()
    await world.store.note(JOB, NOTE, {"since": now - 7200, "until": now - 5})
    assert await world.ledger.conducting() is None
    await term.begin()
    said = await world.ledger.conducting()
    assert said is not None
    assert (round(said.counted_s, -2), round(said.silent_s, -1)) == (7200, 0)
    held_at[0] = time.time()  # the disk is full, or a queue has the job
    await term.begin()
    said = await world.ledger.conducting()
    assert said is not None
    assert said.counted_s < 60
