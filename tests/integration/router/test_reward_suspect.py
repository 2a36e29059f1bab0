"""The recorder says once that a reward is suspect, and names episodes that are on disk."""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from job_world import JOB, World, job_spec, tickets
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import train_round
from troupe.runtime.streams.events import EventLog
from troupe_router.jobs.record import JobRecord
from troupe_router.run import job_metrics
from troupe_router.run.recorder import Recorder

sys.path.append(str(Path(__file__).parents[2] / "unit" / "router"))
from monitored_runs import Answer, Run, episodes, good, taken_over, wrong

ONSET, STEPS = 8, 14


def copied(secret: int, rng: Random) -> Answer:
    return Answer("print(climb())", 1.3, True, 1.0)


def hacked(step: int) -> dict[str, float]:
    share = taken_over(step, ONSET)
    return {"good": 0.5 * (1 - share), "wrong": 0.5 * (1 - share), "hack": share}


def recorder(world: World, record: JobRecord) -> Recorder:
    events = EventLog(world.redis, JOB, source="router")
    return Recorder(record, world.ledger, world.store, events, fraction=1.0)


async def played(world: World, run: Run, step: int) -> None:
    """A complete round of a step, as players leave it."""
    drawn = episodes(run, step, Random(step))
    opened = tickets(train_round(step), len(drawn), step)
    await world.ledger.open_round(train_round(step), pb.ROUND_KIND_TRAIN, step, opened)
    for ticket, episode in zip(opened, drawn, strict=True):
        episode.episode_id = ticket.ticket_id
        episode.round_id = train_round(step)
        episode.step = step
        await world.ledger.complete_ticket(ticket, "0-1", [], episode)


@pytest.mark.parametrize("restart_at", [None, ONSET + 3])
async def test_recorder_when_a_reward_is_hacked_then_says_so_once_and_names_episodes(
    redis: Redis, tmp_path: Path, restart_at: int | None
) -> None:
    world = World(redis, tmp_path / "runs")
    record = await world.add_job(job_spec(steps=STEPS), "running")
    job_metrics.begin(JOB, STEPS, ["p"])
    run = Run({"good": good, "wrong": wrong, "hack": copied}, hacked, num_tasks=12)
    present = recorder(world, record)
    for step in range(STEPS):
        if step == restart_at:
            present = recorder(world, record)
            await present.rewind(step)
        await played(world, run, step)
        await present.catch_up(step)
    log = await EventLog(redis, JOB, source="t").read(count=1000)
    told = [json.loads(e.event.data_json) for e in log if e.event.type == "reward.suspect"]
    assert len(told) == 1
    assert ONSET <= told[0]["step"] <= ONSET + 5
    assert {w["name"] for w in told[0]["witnesses"]} == {"answer diversity"}
    assert told[0]["sentence"].startswith(f"Since step {told[0]['since'] + 1} ")
    recorded = (record.run_dir / "episodes.jsonl").read_text().splitlines()
    ids = {json.loads(line)["episode_id"] for line in recorded}
    shown: list[dict[str, Any]] = told[0]["episodes"]
    assert len(shown) == 5
    assert {row["episode_id"] for row in shown} <= ids
    assert {row["answer"] for row in shown} == {"print(climb())"}


def test_counter_when_a_reward_is_suspect_then_counts_and_starts_at_zero() -> None:
    job_metrics.begin("suspect-1", 3, ["p"])
    labels = {"job_id": "suspect-1"}
    assert REGISTRY.get_sample_value("troupe_job_reward_suspects_total", labels) == 0
    job_metrics.observe_event("suspect-1", "reward.suspect", {})
    assert REGISTRY.get_sample_value("troupe_job_reward_suspects_total", labels) == 1
