"""A flat step is judged with the evaluation that was played while it was learnt."""

import asyncio
import random

from trainer_data import make_group
from trainer_world import JOB, World, end, eventually, open_round

from troupe.api.records.v1 import records_pb2 as records
from troupe.ids import eval_round, train_round
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.ledger import StepLedger


async def _play(world: World, step: int, rewards: list[float]) -> None:
    ledger = StepLedger(world.redis, JOB)
    (ticket,) = await open_round(world.redis, step, 1)
    group = make_group(random.Random(step), step=step, rewards=rewards)
    episode = records.Episode(episode_id=ticket.ticket_id, step=step)
    await ledger.complete_ticket(ticket, "1-1", [group], episode)
    await ledger.mark_recorded(train_round(step))


async def _evaluate(world: World, step: int, success: float) -> None:
    ledger, events = StepLedger(world.redis, JOB), EventLog(world.redis, JOB, source="router")
    await ledger.open_round(eval_round(step), records.ROUND_KIND_EVAL, step, [])
    await events.emit("eval.done", {"step": step, "success": success}, event_id=f"eval-{step}")
    await ledger.mark_recorded(eval_round(step))


async def test_flat_step_when_its_evaluation_ends_after_its_learning_and_rose_then_is_no_news(
    world: World,
) -> None:
    evaluation = {"num_tasks": 2, "every": 1}
    world.spec = world.spec.model_copy(
        update={"eval": type(world.spec.eval).model_validate(evaluation), "steps": 2}
    )
    running = asyncio.ensure_future(world.job().run())
    try:
        await _evaluate(world, 0, success=0.2)
        await _play(world, 0, [1.0, 0.0, 0.0, 0.0])
        await eventually(lambda: world.progress.step == 1 or running.done())
        await _play(world, 1, [1.0] * 4)
        # The trainer has learnt, and waits: only now does the evaluation end.
        await eventually(lambda: world.progress.phase == "evaluation" or running.done())
        await _evaluate(world, 1, success=0.9)
        await eventually(lambda: world.progress.phase == "done" or running.done())
        if running.done():
            running.result()
    finally:
        await end(running)
    assert [report["is_flat"] for report in await world.learned()] == [False, True]
    events = await EventLog(world.redis, JOB, source="test").read()
    assert "learning.flat" not in [stored.event.type for stored in events]
