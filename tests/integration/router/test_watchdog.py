"""The watchdog and the trackers beside a job, on a real Valkey."""

import asyncio
import csv
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet_world import until
from job_world import JOB, World, job_spec, tickets
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.errors import UnavailableError
from troupe.runtime.disk_space import Shortage
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry import metrics
from troupe.runtime.tracking.tracker import TrackedRun
from troupe.spec.job import TrackerSpec
from troupe_router.conduct.controller import JobController
from troupe_router.conduct.progress import ProgressReader
from troupe_router.conduct.watchdog import Watchdog
from troupe_router.members.store import Member
from troupe_router.run.trackers import Trackers, TrackerThread
from troupe_router.settings import RouterSettings

LINES = [{"kind": "train", "step": step, "loss": 0.5 - 0.1 * step} for step in range(3)]


class DeadTracker:
    """Raises at every call, as a server that is down."""

    def __init__(self, run: TrackedRun) -> None:
        raise UnavailableError("nobody listens there")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        raise UnavailableError("nobody listens there")

    def close(self, state: str) -> None:
        raise UnavailableError("nobody listens there")


class UnfinishedTracker:
    """Takes every line, and can't end its run."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        return None

    def close(self, state: str) -> None:
        raise UnavailableError("the upload failed")


class NamingTracker(UnfinishedTracker):
    """Leaves the unique id of its run in the run folder."""

    def close(self, state: str) -> None:
        with (self._run.run_dir / "ids").open("a") as file:
            file.write(f"{self._run.unique_id}\n")


class HungTracker:
    """Never comes back from its first line."""

    released = threading.Event()

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.released.wait(30)

    def close(self, state: str) -> None:
        return None


class SlowTracker(HungTracker):
    """Comes back from its first line when its own test says so."""

    released = threading.Event()


@pytest.fixture
def world(redis: Redis, tmp_path: Any) -> World:
    return World(redis, tmp_path / "runs")


async def said(world: World, *types: str) -> list[dict[str, Any]]:
    stored = await EventLog(world.redis, JOB, source="test").read(count=1000)
    found = [s.event for s in stored if s.event.type in types]
    return [{"type": e.type, **json.loads(e.data_json)} for e in found]


def watchdog(world: World, record: Any) -> Watchdog:
    return Watchdog(
        record,
        redis=world.redis,
        store=world.store,
        members=world.members,
        events=EventLog(world.redis, JOB, source="router"),
        settings=RouterSettings(runs_dir=world.runs_dir),
        disk=world.disk,
        memory=world.memory,
    )


async def test_watchdog_when_a_phase_is_late_then_says_once_who_is_waited_for_and_when_it_ends(
    world: World,
) -> None:
    spec = job_spec(steps=2, limits={"phase_deadline_s": 0.05})
    record = await world.add_job(spec, "running")
    await world.add_members(pb.ReplicaKind.REPLICA_KIND_TRAINER, pb.ReplicaKind.REPLICA_KIND_ENV)
    await world.ledger.open_round(
        "train-00000", records.ROUND_KIND_TRAIN, 0, tickets("train-00000", 3)
    )
    dog = watchdog(world, record)
    await dog.look()
    await asyncio.sleep(0.1)
    await dog.look()
    await dog.look()
    (late,) = await said(world, "phase.overdue", "phase.resolved")
    assert late["phase"] == "play" and late["step"] == 0 and late["who"] == ["p"]
    assert "3 of 3 episodes" in late["sentence"] and late["for_s"] >= 0.0
    labels = {"job_id": JOB, "phase": "play"}
    assert REGISTRY.get_sample_value("troupe_job_phase_is_overdue", labels) == 1
    backlog = {"job_id": JOB, "stream": "tickets"}
    assert REGISTRY.get_sample_value("troupe_job_stream_entries", backlog) == 3
    await world.store.transition(JOB, "cancelling")
    await dog.look()
    events = await said(world, "phase.overdue", "phase.resolved")
    assert [e["type"] for e in events] == ["phase.overdue", "phase.resolved"]
    assert REGISTRY.get_sample_value("troupe_job_phase_is_overdue", labels) == 0


async def test_lag_when_a_replica_loads_or_left_then_has_none(world: World) -> None:
    record = await world.add_job(job_spec(steps=2), "running")
    await world.ledger.commit_version("p", 3, "d")
    dog = watchdog(world, record)

    async def lag(*, is_serving: bool) -> float | None:
        rollout = pb.Replica(
            replica_id="r-0",
            kind=pb.REPLICA_KIND_ROLLOUT,
            policies=[pb.ReplicaPolicy(policy="p", active_version=1)],
            is_serving=is_serving,
        )
        await world.members.put(Member(rollout, JOB, ("p",)))
        return await look()

    async def look() -> float | None:
        await dog.look()
        labels = {"job_id": JOB, "replica": "r-0"}
        return REGISTRY.get_sample_value("troupe_job_replica_version_lag", labels)

    assert await lag(is_serving=False) is None  # it loads
    assert await lag(is_serving=True) == 2
    assert await lag(is_serving=False) is None
    assert await lag(is_serving=True) == 2
    await world.members.remove(["r-0"], reason="its process ended")
    assert await look() is None


async def test_gauges_when_another_router_takes_the_job_then_none_is_left_here(
    world: World,
) -> None:
    spec = job_spec(steps=2, limits={"phase_deadline_s": 0.05})
    record = await world.add_job(spec, "running")
    await world.add_members(pb.ReplicaKind.REPLICA_KIND_TRAINER, pb.ReplicaKind.REPLICA_KIND_ENV)
    metrics.JOB_OVERDUE.clear()  # those of other tests
    conducting = asyncio.create_task(JobController(world.parts(), record).run())

    def jobs() -> set[str]:
        samples = (sample for metric in metrics.JOB_OVERDUE.collect() for sample in metric.samples)
        return {sample.labels["job_id"] for sample in samples}

    await until(lambda: jobs() == {JOB})
    await cancel_all(conducting)
    assert jobs() == set()


async def test_watchdog_when_room_comes_back_between_two_looks_then_the_end_of_the_job_says_so(
    world: World,
) -> None:
    record = await world.add_job(job_spec(steps=2), "running")
    dog = watchdog(world, record)
    world.disk.shortage = Shortage(time.time(), "the disk is full")
    await dog.look()
    world.disk.shortage = replace(world.disk.shortage, ended_at=time.time() + 1)
    await dog.report_room()
    await dog.report_room()
    told = await said(world, "disk.low", "disk.resolved")
    assert [event["type"] for event in told] == ["disk.low", "disk.resolved"]


async def test_watchdog_when_a_trainer_misses_one_look_then_it_is_not_overdue(
    world: World,
) -> None:
    record = await world.add_job(job_spec(steps=2, limits={"phase_deadline_s": 0.05}), "running")
    await world.add_members(pb.ReplicaKind.REPLICA_KIND_TRAINER)
    await world.ledger.open_round("train-00000", records.ROUND_KIND_TRAIN, 0, [])
    await asyncio.sleep(0.1)  # the round is older than the deadline, the silence is not
    dog = watchdog(world, record)
    await dog.look()
    assert await said(world, "phase.overdue") == []
    await asyncio.sleep(0.1)
    await dog.look()
    (late,) = await said(world, "phase.overdue")
    assert "the trainer, which does not answer" in late["sentence"]
    assert late["for_s"] >= 0.1


async def test_lookout_when_trainers_have_told_their_results_then_waits_for_the_others_alone(
    world: World,
) -> None:
    spec = job_spec(
        steps=2,
        agents={"tool": {"policy": "p"}, "planner": {"policy": "q"}},
        policies={"p": {"model": "m"}, "q": {"model": "m"}},
        trainer={"per_policy": True},
    )
    await world.add_job(spec, "running")
    await world.store.set_step(JOB, 2)
    await world.ledger.open_round("eval-00002", records.ROUND_KIND_EVAL, 2, [])
    # Both have ended: nobody is there to be asked.
    record = await world.store.get(JOB)
    settings = RouterSettings(runs_dir=world.runs_dir)
    progress = ProgressReader(world.redis, world.members, settings, world.disk, world.memory)
    await world.ledger.set_result({"step": 2, "policies": {"p": {}}}, policy="p")
    waiting = await progress.look(record)
    assert "the trainer of policy 'q', which does not answer" in waiting.sentence
    await world.ledger.set_result({"step": 2, "policies": {"q": {}}}, policy="q")
    waiting = await progress.look(record)
    assert (waiting.phase, waiting.who, waiting.is_overdue) == ("export", ("router",), False)


async def feed(world: World, record: Any, *, life: int = 1) -> Trackers:
    """Trackers that were given all lines."""
    trackers = Trackers(record, world.store, EventLog(world.redis, JOB, source="router"))
    running = asyncio.create_task(trackers.run(lambda: LINES))
    await until(lambda: min(trackers._offered, default=0) == len(LINES))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return trackers


async def test_trackers_when_one_is_dead_then_the_others_get_every_line_and_it_is_named(
    world: World,
) -> None:
    kinds = [{"kind": f"{__name__}:DeadTracker"}, {"kind": "csv"}]
    record = await world.add_job(job_spec(trackers=kinds), "running")
    trackers = await feed(world, record)
    await until(lambda: bool(trackers._threads[0].error))
    await trackers.close(LINES, "succeeded")
    with (record.run_dir / "tracking.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    (failed,) = await said(world, "tracker.failed")
    assert "nobody listens there" in failed["error"]


async def test_trackers_when_one_fails_at_the_end_of_the_job_then_it_is_told(world: World) -> None:
    kinds = [{"kind": f"{__name__}:UnfinishedTracker"}]
    record = await world.add_job(job_spec(trackers=kinds), "running")
    trackers = await feed(world, record)
    await trackers.close(LINES, "succeeded")
    (failed,) = await said(world, "tracker.failed")
    assert "the upload failed" in failed["error"]


async def test_trackers_when_the_router_comes_back_then_no_line_is_told_twice(world: World) -> None:
    record = await world.add_job(job_spec(trackers=[{"kind": "csv"}]), "running")
    first = await feed(world, record)
    await first.close(LINES[:2], "")
    second = await feed(world, record)
    await second.close(LINES, "succeeded")
    with (record.run_dir / "tracking.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1", "2", "3"]


async def test_trackers_when_another_platform_has_a_job_of_the_name_then_ids_differ(
    world: World,
) -> None:
    record = await world.add_job(
        job_spec(trackers=[{"kind": f"{__name__}:NamingTracker"}]), "running"
    )
    elsewhere = replace(record, created_at=record.created_at + 1)
    for job in (record, replace(record, life=2), elsewhere):
        trackers = await feed(world, job)
        await trackers.close(LINES, "succeeded")
        await world.store.forget_notes(JOB, *await world.store.notes(JOB))  # all is told again
    first, resumed, other = (record.run_dir / "ids").read_text().split()
    assert first == resumed != other
    assert other.startswith(f"{JOB}-")


async def test_trackers_when_one_hangs_then_the_job_is_not_held(world: World) -> None:
    record = await world.add_job(
        job_spec(trackers=[{"kind": f"{__name__}:HungTracker"}, {"kind": "csv"}]), "running"
    )
    trackers = await feed(world, record)
    written = record.run_dir / "tracking.csv"
    await until(lambda: written.exists() and written.read_text().count("\n") == 4)
    HungTracker.released.set()
    await trackers.close(LINES, "succeeded")


async def test_trackers_when_lines_are_dropped_then_queued_ones_are_not_counted_as_told(
    tmp_path: Path,
) -> None:
    spec = TrackerSpec(kind=f"{__name__}:SlowTracker")
    thread = TrackerThread(spec, TrackedRun(JOB, "demo", tmp_path, {}, {}), 0)
    for place in range(1, 2001):
        thread.offer(place, LINES[0])
    assert thread.done == 0
    SlowTracker.released.set()
    await until(lambda: thread.done >= 1000)
    thread.finish("succeeded")
    assert thread.join(10)
    assert thread.done <= 1001
