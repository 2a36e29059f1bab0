"""A full disk under the router: the job waits for it, and then goes on as if nothing happened."""

import json
from pathlib import Path

import pytest
from job_world import JOB, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as records
from troupe.errors import UnavailableError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import RoundState
from troupe_router.jobs.record import JobRecord
from troupe_router.run.recorder import Recorder

ROUND = "train-00000"


@pytest.fixture
def world(redis: Redis, tmp_path: Path) -> World:
    return World(redis, tmp_path / "runs")


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setattr("troupe.runtime.faults._folder", lambda: folder)
    return folder


async def failures(world: World) -> list[str]:
    """Files of the events that tell of a refused write."""
    found = await EventLog(world.redis, JOB, source="t").read()
    told = [e.event for e in found if e.event.type == "recording.failed"]
    return [Path(json.loads(event.data_json)["path"]).name for event in told]


async def played(world: World) -> RoundState:
    (ticket,) = tickets(ROUND, 1)
    await world.ledger.open_round(ROUND, records.ROUND_KIND_TRAIN, 0, [ticket])
    episode = records.Episode(episode_id=ticket.ticket_id, round_id=ROUND, step=0)
    await world.ledger.complete_ticket(ticket, "", [], episode)
    state = await world.ledger.round(ROUND)
    assert state is not None
    return state


def recorder(world: World, job: JobRecord) -> Recorder:
    log = EventLog(world.redis, JOB, source="router")
    return Recorder(job, world.ledger, world.store, log, fraction=1.0)


@pytest.mark.parametrize("kind", ["enospc", "edquot"])
async def test_round_when_the_disk_is_full_then_recorded_once_it_is_not(
    world: World, faults: Path, kind: str
) -> None:
    job = await world.add_job(job_spec(steps=1), "running")
    found = recorder(world, job)
    await found.rewind(0)
    state = await played(world)
    (faults / "router.disk@episodes.jsonl").write_text(kind)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"episodes\.jsonl can't be written .*free"):
            await found.record(state)
    assert await failures(world) == ["episodes.jsonl"]
    (faults / "router.disk@episodes.jsonl").unlink()
    successor = recorder(world, job)
    await successor.rewind(0)
    await successor.record(state)
    assert len((job.run_dir / "episodes.jsonl").read_text().splitlines()) == 1


async def test_job_when_the_disk_is_full_then_is_not_failed_and_ends_once_it_is_not(
    world: World, faults: Path
) -> None:
    record = await world.add_job(job_spec(), "running")
    await world.ledger.commit_version("p", 0, "d")
    await world.ledger.set_result({"step": 0})
    (faults / "router.disk@metrics.jsonl").write_text("enospc")
    with pytest.raises(UnavailableError):
        await world.drive(record)
    assert (await world.store.get(JOB)).state == "running"
    assert await failures(world) == ["metrics.jsonl"]
    (faults / "router.disk@metrics.jsonl").unlink()
    assert (await world.drive(record)).state == "succeeded"
