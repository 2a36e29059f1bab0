"""The wait for the evaluation of the version that serves, on a real Redis."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from trainer_data import job_spec
from trainer_world import JOB

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import JobFailedError
from troupe.ids import eval_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger
from troupe_trainer.control import Control, StoppedError
from troupe_trainer.publish.evaluations import Evaluations


def _evaluations(
    redis: Redis, control: Control | None = None, *, is_first: bool = False, **more: Any
) -> Evaluations:
    spec = job_spec(Path("model"), steps=4, eval={"num_tasks": 2, "every": 2}, **more)

    async def make_room() -> None:
        return None

    ledger = StepLedger(redis, JOB)
    return Evaluations(spec, ledger, control or Control(), make_room, is_first=is_first)


async def _record(redis: Redis, step: int) -> None:
    ledger = StepLedger(redis, JOB)
    await ledger.open_round(eval_round(step), pb.ROUND_KIND_EVAL, step, [])
    await ledger.mark_recorded(eval_round(step))


async def test_wait_when_an_evaluation_is_due_then_lasts_until_it_is_recorded(
    redis: Redis,
) -> None:
    evaluations = _evaluations(redis)
    await evaluations.before_checkpoint(1)  # none is due
    await evaluations.before_learning(2)  # the device is the trainer's own
    waiting = asyncio.create_task(evaluations.before_checkpoint(2))
    ticket = pb.Ticket(ticket_id=f"{JOB}/e/0", job_id=JOB, round_id=eval_round(2))
    ledger = StepLedger(redis, JOB)
    await ledger.open_round(eval_round(2), pb.ROUND_KIND_EVAL, 2, [ticket])
    await ledger.complete_ticket(ticket, "1-1", [], pb.Episode(episode_id=ticket.ticket_id))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done  # it is complete, and not in the run folder yet
    await ledger.mark_recorded(eval_round(2))
    async with asyncio.timeout(5):
        await waiting


async def test_wait_when_the_servers_give_the_device_away_then_comes_before_learning(
    redis: Redis,
) -> None:
    waiting = asyncio.create_task(_evaluations(redis, is_first=True).before_learning(0))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    await _record(redis, 0)
    async with asyncio.timeout(5):
        await waiting


async def test_wait_when_a_step_is_learnt_again_then_is_none(redis: Redis) -> None:
    await StepLedger(redis, JOB).commit_version("shared", 3, "digest")
    async with asyncio.timeout(5):
        await _evaluations(redis).before_checkpoint(2)


async def test_wait_when_rounds_are_played_ahead_then_is_none(redis: Redis) -> None:
    async with asyncio.timeout(5):
        algorithm = {"group_size": 4, "loss": {"importance": {}}}
        evaluations = _evaluations(redis, max_staleness=1, algorithm=algorithm)
        await evaluations.before_checkpoint(2)


async def test_wait_when_nobody_conducts_the_evaluation_then_ends_with_what_to_look_at(
    redis: Redis,
) -> None:
    evaluations = _evaluations(redis, limits={"step_timeout_s": 0.2})
    with pytest.raises(JobFailedError, match="evaluation of version 0, which is not begun"):
        await evaluations.before_checkpoint(0)


async def test_wait_when_no_router_conducts_the_job_then_goes_on_after_its_limit(
    redis: Redis,
) -> None:
    await redis.hset(keys.ledger(JOB), "conducted", "1.0 1.0")  # long ago
    evaluations = _evaluations(redis, limits={"step_timeout_s": 0.1})
    waiting = asyncio.create_task(evaluations.before_checkpoint(0))
    done, _ = await asyncio.wait({waiting}, timeout=0.5)
    assert not done
    await _record(redis, 0)
    async with asyncio.timeout(5):
        await waiting


async def test_wait_when_the_job_is_stopped_then_ends(redis: Redis) -> None:
    control = Control()
    waiting = asyncio.create_task(_evaluations(redis, control).before_checkpoint(0))
    control.stop("enough")
    with pytest.raises(StoppedError):
        async with asyncio.timeout(5):
            await waiting
