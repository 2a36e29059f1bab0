"""An evaluation begins in the tail of its version's training round."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from job_world import JOB, World, job_spec
from redis.asyncio import Redis

from troupe.aio import cancel_all
from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import eval_round, ticket_id, train_round
from troupe.runtime.streams.ledger import RoundState, StepLedger
from troupe_router.conduct.controller import JobController
from troupe_router.jobs.record import JobRecord

TASKS = 16
EVAL_TASKS = 2


async def _until(world: World, check: Callable[[], Awaitable[bool]]) -> None:
    ledger = StepLedger(world.redis, JOB)
    async with asyncio.timeout(20):
        while not await check():
            await ledger.wait_change(0.2)


async def _opened(world: World, round_id: str) -> RoundState:
    async def is_open() -> bool:
        return await world.ledger.round(round_id) is not None

    await _until(world, is_open)
    state = await world.ledger.round(round_id)
    assert state is not None
    return state


async def _recorded(world: World, round_id: str) -> None:
    async def is_recorded() -> bool:
        state = await world.ledger.round(round_id)
        return state is not None and state.is_recorded

    await _until(world, is_recorded)


async def _complete(world: World, round_id: str, positions: range, kind: pb.RoundKind) -> None:
    for position in positions:
        name = ticket_id(JOB, round_id, position)
        ticket = pb.Ticket(ticket_id=name, job_id=JOB, round_id=round_id, kind=kind)
        episode = pb.Episode(episode_id=name, is_success=True)
        await world.ledger.complete_ticket(ticket, "", [], episode)


async def _job(redis: Redis, folder: Path) -> tuple[World, JobRecord]:
    world = World(redis, folder)
    spec = job_spec(steps=1, tasks_per_step=TASKS, eval={"num_tasks": EVAL_TASKS})
    return world, await world.add_job(spec, "running")


def _lines(world: World) -> list[dict[str, object]]:
    text = (world.runs_dir / JOB / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


async def test_evaluation_when_an_eighth_of_its_round_is_left_then_is_opened_and_hidden(
    redis: Redis, tmp_path: Path
) -> None:
    world, record = await _job(redis, tmp_path)
    train, held_out = pb.ROUND_KIND_TRAIN, pb.ROUND_KIND_EVAL
    conducting = asyncio.create_task(JobController(world.parts(), record).run())
    try:
        await world.ledger.commit_version("p", 0, "first")
        await _opened(world, train_round(0))
        await _complete(world, train_round(0), range(TASKS - 3), train)
        before = await world.ledger.round(train_round(0))
        assert before is not None
        assert before.num_done == TASKS - 3
        assert await world.ledger.round(eval_round(0)) is None
        await _complete(world, train_round(0), range(TASKS - 3, TASKS - 2), train)
        assert (await _opened(world, eval_round(0))).num_tickets == EVAL_TASKS
        # The training round is recorded, and learnt from, while the evaluation is played.
        await _complete(world, train_round(0), range(TASKS - 2, TASKS), train)
        await _recorded(world, train_round(0))
        await _complete(world, eval_round(0), range(EVAL_TASKS), held_out)
        await _recorded(world, eval_round(0))
        await world.ledger.commit_version("p", 1, "second")
        await _opened(world, eval_round(1))
        await _complete(world, eval_round(1), range(EVAL_TASKS), held_out)
        await world.ledger.set_result({"step": 1, "policies": {}})
        async with asyncio.timeout(30):
            await conducting
    finally:
        await cancel_all(conducting)
    lines = _lines(world)
    assert sorted((x["kind"], x["step"]) for x in lines) == [("eval", 0), ("eval", 1), ("train", 0)]
    of_eval = next(x for x in lines if x["kind"] == "eval" and x["step"] == 0)
    of_train = next(x for x in lines if x["kind"] == "train")
    assert of_train["eval_hidden_s"] == of_eval["wall_s"]  # no trainer waited for it


async def test_evaluation_when_it_is_recorded_and_redis_is_lost_then_its_round_says_so(
    redis: Redis, tmp_path: Path
) -> None:
    world, record = await _job(redis, tmp_path)
    conducting = asyncio.create_task(JobController(world.parts(), record).run())
    await world.ledger.commit_version("p", 0, "first")
    await _opened(world, train_round(0))
    await _complete(world, train_round(0), range(TASKS - 1), pb.ROUND_KIND_TRAIN)
    await _opened(world, eval_round(0))
    await _complete(world, eval_round(0), range(EVAL_TASKS), pb.ROUND_KIND_EVAL)
    await _recorded(world, eval_round(0))
    await cancel_all(conducting)
    await world.ledger.delete()

    conducting = asyncio.create_task(JobController(world.parts(), record).run())
    try:
        await world.ledger.commit_version("p", 0, "first")
        await _recorded(world, eval_round(0))
        state = await world.ledger.round(eval_round(0))
        assert state is not None
        assert state.num_tickets == 0
        assert (await _opened(world, train_round(0))).num_tickets == TASKS
    finally:
        await cancel_all(conducting)


async def test_evaluation_when_the_router_dies_between_its_line_and_its_mark_then_is_marked(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, record = await _job(redis, tmp_path)
    has_line, mark = asyncio.Event(), StepLedger.mark_recorded

    # Not the fault point there, "router.evaluation_in_file": it stops the whole process, which is
    # pytest here. The kill matrix ends a router at it (tests/chaos/chaos_cases.py).
    async def dies(ledger: StepLedger, round_id: str) -> None:
        if round_id != eval_round(0):
            await mark(ledger, round_id)
            return
        has_line.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(StepLedger, "mark_recorded", dies)
    conducting = asyncio.create_task(JobController(world.parts(), record).run())
    await world.ledger.commit_version("p", 0, "first")
    await _opened(world, train_round(0))
    await _complete(world, train_round(0), range(TASKS - 1), pb.ROUND_KIND_TRAIN)
    await _opened(world, eval_round(0))
    await _complete(world, eval_round(0), range(EVAL_TASKS), pb.ROUND_KIND_EVAL)
    async with asyncio.timeout(20):
        await has_line.wait()
    await cancel_all(conducting)
    monkeypatch.undo()

    conducting = asyncio.create_task(JobController(world.parts(), record).run())
    try:
        await _recorded(world, eval_round(0))
    finally:
        await cancel_all(conducting)
    assert [line["kind"] for line in _lines(world)] == ["eval"]


async def test_evaluation_when_the_job_is_resumed_with_fewer_tasks_then_it_is_recorded_as_opened(
    redis: Redis, tmp_path: Path
) -> None:
    world, kind = World(redis, tmp_path), pb.ROUND_KIND_EVAL
    record = await world.add_job(job_spec(eval={"num_tasks": EVAL_TASKS}), "running")
    await world.ledger.commit_version("p", 0, "first")
    round_id, names = eval_round(0), [ticket_id(JOB, eval_round(0), i) for i in range(TASKS)]
    opened = [pb.Ticket(ticket_id=n, job_id=JOB, round_id=round_id, kind=kind) for n in names]
    await world.ledger.open_round(round_id, kind, 0, opened)
    await _complete(world, round_id, range(TASKS), kind)
    await world.ledger.set_result({"step": 0, "policies": {}})
    ended = await world.drive(record)
    assert ended.state == "succeeded", ended.reason
    assert [line["num_tasks"] for line in _lines(world)] == [TASKS]
