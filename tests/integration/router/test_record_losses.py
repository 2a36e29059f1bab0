"""Records are on the disk before anything forgets them, and what is missing later is named."""

import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_world import JOB, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as records
from troupe.ids import eval_round, train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.run import recorder as recorder_of_a_job
from troupe_router.run.recorder import Recorder

STEPS = 3
EPISODES = 2


@pytest.fixture
def world(redis: Redis, tmp_path: Path) -> World:
    return World(redis, tmp_path / "runs")


def recorder(world: World, job: JobRecord) -> Recorder:
    log = EventLog(world.redis, JOB, source="router")
    return Recorder(job, world.ledger, world.store, log, fraction=1.0)


async def play(world: World, found: Recorder, round_id: str, kind: int, step: int) -> None:
    played = tickets(round_id, EPISODES, step)
    for ticket in played:
        ticket.kind = kind
    await world.ledger.open_round(round_id, kind, step, played)
    for ticket in played:
        episode = records.Episode(
            episode_id=ticket.ticket_id, round_id=round_id, step=step, kind=kind
        )
        await world.ledger.complete_ticket(ticket, "", [], episode)
    state = await world.ledger.round(round_id)
    assert state is not None
    await found.record(state)
    await world.ledger.mark_recorded(round_id)


async def run_job(world: World, *, num_steps: int = STEPS) -> JobRecord:
    """A job that is at ``num_steps`` of its steps, all recorded."""
    spec = job_spec(steps=STEPS, eval={"num_tasks": EPISODES, "every": 1})
    job = await world.add_job(spec, "running")
    found = recorder(world, job)
    await found.rewind(0)
    log = EventLog(world.redis, JOB, source="trainer")
    for step in range(num_steps):
        await play(world, found, eval_round(step), records.ROUND_KIND_EVAL, step)
        await play(world, found, train_round(step), records.ROUND_KIND_TRAIN, step)
        await log.emit("step.learned", {"step": step, "phases": {"learn": 0.1}})
        await found.learned(step)
        await found.finish()
    await play(world, found, eval_round(num_steps), records.ROUND_KIND_EVAL, num_steps)
    return job


async def told(world: World, type: str) -> list[dict[str, Any]]:
    events = await EventLog(world.redis, JOB, source="t").read(count=1000)
    return [json.loads(e.event.data_json) for e in events if e.event.type == type]


def parts(job: JobRecord, name: str) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in (job.run_dir / name).read_text().splitlines()]
    return [(line["kind"], line["step"]) for line in lines]


async def test_records_when_something_is_forgotten_then_all_that_was_written_is_synced(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    synced: dict[str, int] = {}
    forgotten: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced[str(Path(f"/proc/self/fd/{descriptor}").readlink())] = os.fstat(descriptor).st_size

    def check(what: str) -> None:
        folder = world.runs_dir / JOB
        files = [*folder.glob("*.jsonl")]
        assert files, f"nothing is written when {what} goes"
        for path in files:
            assert synced.get(str(path)) == path.stat().st_size, f"{path.name} when {what} goes"
            assert str(folder) in synced
        forgotten.append(what)

    def checking(what: str, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any) -> Any:
            check(what)
            return await real(*args)

        return call

    monkeypatch.setattr(os, "fsync", fsync)
    for owner, name in ((StepLedger, "mark_recorded"), (JobStore, "forget_notes")):
        monkeypatch.setattr(owner, name, checking(name, getattr(owner, name)))
    await run_job(world)
    assert forgotten.count("mark_recorded") == 2 * STEPS + 1
    assert forgotten.count("forget_notes") == STEPS


async def played_and_learnt(
    world: World, reports: Sequence[int], *, opened_ago_s: float = 0.0
) -> JobRecord:
    """A job at step 2 whose router died before it wrote a line; of ``reports`` the trainer told."""
    job = await world.add_job(job_spec(steps=STEPS, eval={"num_tasks": 0}), "running")
    found = recorder(world, job)
    await found.rewind(0)
    for step in range(2):
        await play(world, found, train_round(step), records.ROUND_KIND_TRAIN, step)
        key = keys.round_state(JOB, train_round(step))
        await world.redis.hset(key, "opened_at", str(time.time() - opened_ago_s))
    log = EventLog(world.redis, JOB, source="trainer")
    for step in reports:
        await log.emit("step.learned", {"step": step, "loss": 0.25 + step})
    return job


async def test_step_when_the_router_was_away_for_minutes_then_its_line_has_the_trainers_report(
    world: World,
):
    job = await played_and_learnt(world, [0, 1], opened_ago_s=600.0)
    successor = recorder(world, job)
    await successor.rewind(2)
    await successor.learned(1)
    await successor.finish()
    assert [(line["step"], line["loss"]) for line in successor.lines] == [(0, 0.25), (1, 1.25)]


async def test_step_when_its_trainer_is_away_for_minutes_then_the_line_waits_for_its_report(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr(recorder_of_a_job, "time", clock)
    job = await world.add_job(job_spec(steps=STEPS, eval={"num_tasks": 0}), "running")
    found = recorder(world, job)
    await found.rewind(0)
    for step in range(2):
        await play(world, found, train_round(step), records.ROUND_KIND_TRAIN, step)
    await found.learned(0, is_end=True)  # its trainer was killed between commit and report
    clock.monotonic = lambda: time.monotonic() + 600.0
    await found.learned(1, is_end=True)
    assert found.lines == []
    log = EventLog(world.redis, JOB, source="trainer")
    for step in range(2):  # it is back, and has learnt both
        await log.emit("step.learned", {"step": step, "loss": 0.25 + step})
    await found.finish()
    assert [line["loss"] for line in found.lines] == [0.25, 1.25]


async def test_step_when_its_trainer_reported_a_later_one_then_its_own_report_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr(recorder_of_a_job, "time", clock)
    job = await played_and_learnt(world, [1])
    found = recorder(world, job)
    await found.rewind(2)
    clock.monotonic = lambda: time.monotonic() + 60.0
    await found.learned(1, is_end=True)
    assert [(line["step"], line.get("loss")) for line in found.lines] == [(0, None), (1, 1.25)]


async def test_step_when_an_earlier_one_is_not_reported_yet_then_lines_keep_their_order(
    world: World,
):
    job = await played_and_learnt(world, [1])
    successor = recorder(world, job)
    await successor.rewind(2)
    await successor.learned(0, is_end=True)
    await successor.learned(1, is_end=True)
    assert successor.lines == []
    await EventLog(world.redis, JOB, source="trainer").emit("step.learned", {"step": 0, "loss": 1})
    await successor.finish()
    assert parts(job, "metrics.jsonl") == [("train", 0), ("train", 1)]


async def test_step_when_a_resumed_job_learns_it_again_then_its_line_has_the_new_report(
    world: World,
):
    job = await world.add_job(job_spec(steps=STEPS, eval={"num_tasks": 0}), "running")
    log = EventLog(world.redis, JOB, source="trainer")
    for step in range(2):
        await log.emit("step.learned", {"step": step, "loss": 0.25}, event_id=f"learned-{step}")
    # No checkpoint has step 1.
    await world.store.transition(JOB, "failed")
    await world.store.reopen(replace(job, state="queued", life=2))
    await world.store.transition(JOB, "launching")
    found = recorder(world, await world.store.transition(JOB, "running"))
    await found.rewind(1)
    await play(world, found, train_round(1), records.ROUND_KIND_TRAIN, 1)
    await found.learned(1, is_end=True)
    assert found.lines == []
    for step in range(2):
        await log.emit("step.learned", {"step": step, "loss": 1.5}, event_id=f"learned-{step}")
    await found.finish()
    assert [(line["step"], line["loss"]) for line in found.lines] == [(1, 1.5)]
    assert [(said["step"], said["loss"]) for said in await told(world, "step.learned")] == [
        (0, 0.25),
        (1, 0.25),
        (1, 1.5),
    ]


async def test_rewind_when_nothing_is_missing_then_nothing_is_told_or_changed(world: World):
    job = await run_job(world)
    before = {path: path.read_bytes() for path in job.run_dir.glob("*.jsonl")}
    await recorder(world, job).rewind(STEPS)
    assert {path: path.read_bytes() for path in job.run_dir.glob("*.jsonl")} == before
    assert await told(world, "records.lost") == []
    assert await told(world, "records.rebuilt") == []


def cut_back(job: JobRecord, name: str) -> None:
    """As the file was one step earlier, with its digests."""
    for path in (job.run_dir / f"{name}.jsonl", job.run_dir / f"{name}.digests.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        last = (f'"step":{STEPS - 1}'.encode(), f'"step":{STEPS}'.encode())
        gone = (train_round(STEPS - 1).encode(), eval_round(STEPS).encode())
        kept = [x for x in lines if not any(word in x for word in (*last, *gone))]
        assert len(kept) < len(lines)
        path.write_bytes(b"".join(kept))


@pytest.mark.parametrize("with_digests", [True, False], ids=["digests too", "digests gone"])
async def test_rewind_when_the_files_are_of_a_step_earlier_then_the_gap_is_named_or_mended(
    world: World, with_digests: bool
):
    job = await run_job(world)
    before = (job.run_dir / "metrics.jsonl").read_text().splitlines()
    for name in ("episodes", "metrics"):
        cut_back(job, name)
        if not with_digests:
            (job.run_dir / f"{name}.digests.jsonl").unlink()
    found = recorder(world, job)
    await found.rewind(STEPS)
    lost = [(loss["file"], loss["part"]) for loss in await told(world, "records.lost")]
    missing = {eval_round(STEPS - 1), train_round(STEPS - 1), eval_round(STEPS)}
    assert {part for file, part in lost if file == "episodes.jsonl"} == missing
    assert {part for file, part in lost if file == "metrics.jsonl"} == set()
    (rebuilt,) = await told(world, "records.rebuilt")
    assert set(rebuilt["parts"]) == missing
    after = (job.run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in after] == [json.loads(line) for line in before]
    assert await found.has_eval(STEPS)
    assert {loss["part"] for loss in found.losses} == missing


async def test_rewind_when_events_are_gone_too_then_each_lost_line_is_named(
    world: World, redis: Redis
):
    job = await run_job(world)
    cut_back(job, "metrics")
    await redis.delete(f"troupe:{{{JOB}}}:events")
    found = recorder(world, job)
    await found.rewind(STEPS)
    lost = {(loss["file"], loss["part"]) for loss in found.losses}
    missing = {eval_round(STEPS - 1), train_round(STEPS - 1), eval_round(STEPS)}
    assert lost == {("metrics.jsonl", part) for part in missing}
    assert await found.has_eval(STEPS)


async def test_rewind_when_an_older_version_wrote_the_files_then_nothing_is_lost(world: World):
    job = await run_job(world)
    before = (job.run_dir / "episodes.jsonl").read_bytes()
    for name in ("episodes", "metrics"):
        (job.run_dir / f"{name}.digests.jsonl").unlink()
    await recorder(world, job).rewind(STEPS)
    assert (job.run_dir / "episodes.jsonl").read_bytes() == before
    assert await told(world, "records.lost") == []


async def test_record_when_the_router_died_amid_the_write_then_the_round_is_written_once(
    world: World,
):
    job = await run_job(world, num_steps=1)
    (ticket,) = tickets(train_round(1), 1, 1)
    await world.ledger.open_round(train_round(1), records.ROUND_KIND_TRAIN, 1, [ticket])
    episode = records.Episode(episode_id=ticket.ticket_id, round_id=train_round(1), step=1)
    await world.ledger.complete_ticket(ticket, "", [], episode)
    with (job.run_dir / "episodes.jsonl").open("a") as file:
        file.write('{"kind":"train","step":1,"episode_id":"half"}\n{"kind":"tr')
    found = recorder(world, job)
    await found.rewind(2)
    await found.catch_up(1)
    assert parts(job, "episodes.jsonl").count(("train", 1)) == 1
    assert "half" not in (job.run_dir / "episodes.jsonl").read_text()
    assert await told(world, "records.lost") == []


async def test_rewind_when_redis_lost_a_round_then_its_episodes_are_written_anew(
    world: World, redis: Redis
):
    job = await run_job(world, num_steps=1)
    opened = [train_round(1), eval_round(1)]
    await play(world, recorder(world, job), train_round(1), records.ROUND_KIND_TRAIN, 1)
    for round_id in opened:
        await redis.delete(f"troupe:{{{JOB}}}:round:{round_id}")
    for path in (job.run_dir / "metrics.jsonl", job.run_dir / "metrics.digests.jsonl"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    await redis.delete(f"troupe:{{{JOB}}}:events")
    found = recorder(world, job)
    await found.rewind(1)
    assert not await found.has_eval(1)
    assert found.losses == []
    for round_id, kind in zip(
        opened, (records.ROUND_KIND_TRAIN, records.ROUND_KIND_EVAL), strict=True
    ):
        assert (round_id.split("-")[0], 1) not in parts(job, "episodes.jsonl")
        await play(world, found, round_id, kind, 1)
        assert parts(job, "episodes.jsonl").count((round_id.split("-")[0], 1)) == EPISODES
