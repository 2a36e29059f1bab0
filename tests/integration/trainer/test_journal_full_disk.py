"""A full disk under the trainer: no step is lost, and the last checkpoint is waited for."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from trainer_data import job_spec, make_group

from troupe.runtime.streams.events import EventLog
from troupe.spec.job import JobSpec
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.checkpoint.files import Checkpoints
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.report import step_report


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setattr("troupe.runtime.faults._folder", lambda: folder)
    return folder


@pytest.fixture
def spec(tiny_model: Path) -> JobSpec:
    return job_spec(tiny_model, steps=2)


@pytest.fixture
async def team(spec: JobSpec, tmp_path: Path) -> AsyncIterator[Learners]:
    loaded = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    yield loaded
    loaded.close()


async def learn(journal: Checkpointing, team: Learners, step: int) -> int:
    """One step of one group; how many steps a checkpoint covers then."""
    group = make_group(random.Random(step), step=step, rewards=[1.0, 0.0, 0.0, 0.0])
    batch = Batch(step, {"shared": [group]}, {})
    learned = await team.learn(batch)
    return await journal.write(step + 1, batch, learned, step_report(batch, learned, 1.0))


async def failed_steps(events: EventLog) -> list[Any]:
    found = [stored.event for stored in await events.read()]
    return [json.loads(e.data_json)["step"] for e in found if e.type == "checkpoint.failed"]


def recorded_steps(run_dir: Path) -> list[int]:
    return [json.loads(x)["step"] for x in (run_dir / "groups.jsonl").read_text().splitlines()]


async def test_steps_when_a_checkpoint_is_refused_then_the_next_one_covers_them(
    redis: Redis, spec: JobSpec, team: Learners, tmp_path: Path, faults: Path
) -> None:
    events = EventLog(redis, "unit-1", source="trainer")
    journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec), events)
    (faults / "trainer.checkpoint_staged@1").write_text("enospc")
    assert await learn(journal, team, 0) == 0
    assert await learn(journal, team, 1) == 2
    assert await failed_steps(events) == [1]
    assert recorded_steps(tmp_path) == [0, 1]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00002"]


async def test_last_checkpoint_when_the_disk_is_full_then_is_written_once_it_is_not(
    redis: Redis, spec: JobSpec, team: Learners, tmp_path: Path, faults: Path
) -> None:
    events = EventLog(redis, "unit-1", source="trainer")
    journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec), events)
    await learn(journal, team, 0)
    full = faults / "trainer.checkpoint_staged@2"
    full.write_text("edquot")
    last = asyncio.create_task(learn(journal, team, 1))
    async with asyncio.timeout(90):
        while not await failed_steps(events):
            assert not last.done(), "the last checkpoint was not refused"
            await asyncio.sleep(0.05)
        full.unlink()
        assert await last == 2
    assert await failed_steps(events) == [2]
    assert recorded_steps(tmp_path) == [0, 1]
