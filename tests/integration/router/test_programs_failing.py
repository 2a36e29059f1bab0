"""The recorder says when agent programs begin to fail, and not again while they go on failing."""

import json
from pathlib import Path

import pytest
from job_world import JOB, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import train_round
from troupe.runtime.streams.events import EventLog
from troupe_router.run.recorder import Recorder

FAILED = [0, 2, 1, 0, 3]
"""Of four programs, those that raised, step by step."""


async def played(world: World, step: int, num_failed: int) -> None:
    """A complete round of a step, as players leave it: a program for each of four tickets."""
    opened = tickets(train_round(step), 4, step)
    await world.ledger.open_round(train_round(step), pb.ROUND_KIND_TRAIN, step, opened)
    for position, ticket in enumerate(opened):
        end = "program_error" if position < num_failed else "answered"
        episode = pb.Episode(
            episode_id=ticket.ticket_id,
            round_id=train_round(step),
            kind=pb.ROUND_KIND_TRAIN,
            step=step,
            program_ends={end: 1},
        )
        await world.ledger.complete_ticket(ticket, "0-1", [], episode)


@pytest.mark.parametrize(
    ("monitor", "told"),
    [({"failed_programs": 0.25}, [1, 4]), ({}, [1, 4]), ({"is_on": False}, [])],
)
async def test_recorder_when_programs_begin_to_fail_then_says_so_once(
    redis: Redis, tmp_path: Path, monitor: dict[str, object], told: list[int]
) -> None:
    world = World(redis, tmp_path / "runs")
    spec = job_spec(steps=len(FAILED), monitor=monitor)
    record = await world.add_job(spec, "running")
    events = EventLog(redis, JOB, source="router")
    recorder = Recorder(record, world.ledger, world.store, events, fraction=1.0)
    for step, num_failed in enumerate(FAILED):
        await played(world, step, num_failed)
        await recorder.catch_up(step)
    log = await EventLog(redis, JOB, source="t").read(count=1000)
    data = [json.loads(e.event.data_json) for e in log if e.event.type == "program.failing"]
    assert [line["step"] for line in data] == told
    assert [line["share"] for line in data] == [FAILED[step] / 4 for step in told]
    rounds = [json.loads(e.event.data_json) for e in log if e.event.type == "round.played"]
    assert [line["program_failed"] for line in rounds] == [n / 4 for n in FAILED]
