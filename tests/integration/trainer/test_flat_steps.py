"""A step that teaches nothing says so: once, with what to do, and only then."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from trainer_data import job_spec, make_group

from troupe.api.records.v1 import records_pb2 as pb
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.stream import FIELD
from troupe.runtime.streams.versions import VERSION_FIELD
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.checkpoint.files import Checkpoints
from troupe_trainer.learn.advice import SOLVED
from troupe_trainer.learn.collector import Batch
from troupe_trainer.learn.flat_steps import FlatSteps
from troupe_trainer.learn.learners import Learners
from troupe_trainer.learn.report import step_report


async def test_flat_step_when_learnt_then_one_event_warns_of_it(
    redis: Redis, tiny_model: Path, tmp_path: Path
) -> None:
    spec = job_spec(tiny_model)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    events = EventLog(redis, "unit-1", source="trainer")
    journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec), events)
    try:
        for step, rewards in enumerate([[1.0, 0.0, 0.0, 0.0], [1.0] * 4, [1.0] * 4]):
            group = make_group(random.Random(step), step=step, rewards=rewards)
            batch = Batch(step, {"shared": [group]}, {"non_finite_reward": 3})
            report = step_report(batch, await team.learn(batch), 1.0)
            await journal.emit_flat(report, batch)
            await journal.emit_flat(report, batch)
    finally:
        team.close()
    found = [stored.event for stored in await events.read()]
    assert [event.type for event in found] == ["learning.flat"]
    data = json.loads(found[0].data_json)
    assert data["step"] == 1
    assert data["groups_zero_variance"] == 1
    assert data["groups_dropped"] == {"non_finite_reward": 3}
    assert (
        "advantages other than 0: nothing was learnt. Every answer was paid 1" in data["sentence"]
    )


async def test_flat_step_when_policies_have_trainers_then_each_warns_of_its_own(
    redis: Redis, tiny_model: Path, tmp_path: Path
) -> None:
    model = {"model": str(tiny_model)}
    agents = {"tool": {"policy": "one"}, "planner": {"policy": "two"}}
    spec = job_spec(
        tiny_model,
        agents=agents,
        policies={"one": model, "two": model},
        trainer={"per_policy": True},
    )
    events = EventLog(redis, "unit-1", source="trainer")
    for policy, agent in (("one", "tool"), ("two", "planner")):
        team = await Learners.load(spec, tmp_path, device="cpu", threads=1, policy=policy)
        journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec, policy=policy), events)
        try:
            group = make_group(random.Random(0), agent=agent, rewards=[1.0] * 4)
            group.policy = policy
            batch = Batch(0, {policy: [group]}, {})
            report = step_report(batch, await team.learn(batch), 1.0, policy=policy)
            for _ in range(2):
                await journal.emit_flat(report, batch)
                await journal.emit_learned(report, {})
        finally:
            team.close()
    told = [json.loads(stored.event.data_json) for stored in await events.read()]
    assert [data["policy"] for data in told if "policy" in data] == ["one", "two"]
    sentences = [data["sentence"] for data in told if "sentence" in data]
    assert len(sentences) == 2
    assert "of policy 'one'" in sentences[0]
    assert "of policy 'two'" in sentences[1]


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ({"loss": {"entropy_coef": 0.1}}, "only the KL term or entropy bonus moved any weight"),
        ({"kind": "ippo", "critic": {"kind": "head"}}, "only the critic moved any weight"),
    ],
    ids=["entropy", "critic"],
)
async def test_flat_step_when_something_else_learns_then_the_event_does_not_say_nothing(
    redis: Redis, tiny_model: Path, tmp_path: Path, algorithm: dict[str, Any], words: str
) -> None:
    spec = job_spec(tiny_model, algorithm={"group_size": 4, **algorithm})
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    events = EventLog(redis, "unit-1", source="trainer")
    journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec), events)
    try:
        group = make_group(random.Random(0), rewards=[1.0] * 4)
        for candidate in group.candidates:
            candidate.trajectory = candidate.index
        batch = Batch(0, {"shared": [group]}, {})
        await journal.emit_flat(step_report(batch, await team.learn(batch), 1.0), batch)
    finally:
        team.close()
    (found,) = [stored.event for stored in await events.read()]
    assert words in json.loads(found.data_json)["sentence"]


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0, 0.0, 0.0, 0.0]], ids=["flat", "varied"])
async def test_completions_when_cut_off_then_the_advice_is_to_raise_the_limit(
    redis: Redis, tiny_model: Path, tmp_path: Path, rewards: list[float]
) -> None:
    spec = job_spec(tiny_model)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    events = EventLog(redis, "unit-1", source="trainer")
    journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec), events)
    try:
        # Cut off, cut off again, all finished, cut off once more.
        for step, num_cut in enumerate([4, 2, 0, 3]):
            group = make_group(random.Random(step), step=step, rewards=rewards)
            for candidate in group.candidates[:num_cut]:
                candidate.finish_reason = pb.FINISH_REASON_LENGTH
            for candidate in group.candidates[num_cut:]:
                candidate.finish_reason = pb.FINISH_REASON_STOP
            batch = Batch(step, {"shared": [group]}, {})
            report = step_report(batch, await team.learn(batch), 1.0)
            await journal.emit_flat(report, batch)
            await journal.emit_truncated(report)
    finally:
        team.close()
    told = [
        (stored.event.type, json.loads(stored.event.data_json)) for stored in await events.read()
    ]
    cut = [data for name, data in told if name == "learning.truncated"]
    assert [data["step"] for data in cut] == [0, 3]
    assert all("Raise sampling.max_new_tokens" in data["sentence"] for data in cut)
    flat = {data["step"]: data["sentence"] for name, data in told if name == "learning.flat"}
    assert set(flat) == (set() if rewards[0] else {0, 1})
    for sentence in flat.values():
        assert "max_new_tokens" in sentence
        assert "Every answer was paid 0" in sentence


async def test_flat_cause_when_said_then_again_only_after_steps_that_taught(redis: Redis) -> None:
    steps = FlatSteps(EventLog(redis, "unit-1", source="trainer"))
    assert await steps.is_news("unpaid_wrong")
    assert await steps.is_news(SOLVED)
    for _ in range(20):  # solved here, varied there: a team that is nearly done
        assert not await steps.is_news(SOLVED)
        steps.varied()
    assert not await steps.is_news("unpaid_wrong")
    for _ in range(10):
        steps.varied()
    assert await steps.is_news("unpaid_wrong")
    assert not await steps.is_news(SOLVED)


async def test_flat_steps_when_held_out_success_rises_then_silent_until_it_does_not(
    redis: Redis,
) -> None:
    events = EventLog(redis, "unit-1", source="trainer")
    steps = FlatSteps(events)
    for step, success in enumerate([0.3, 0.6, 0.9]):
        await events.emit("eval.done", {"step": step * 10, "success": success, "num_tasks": 20})
    assert not await steps.is_news(SOLVED)
    await events.emit("eval.done", {"step": 30, "success": None, "num_tasks": 0})
    assert not await steps.is_news(SOLVED)
    await events.emit("eval.done", {"step": 40, "success": 0.9, "num_tasks": 20})
    assert await steps.is_news(SOLVED)
    assert not await steps.is_news(SOLVED)


async def test_flat_steps_when_ten_in_a_row_then_said_although_held_out_success_rises(
    redis: Redis,
) -> None:
    events = EventLog(redis, "unit-1", source="trainer")
    steps = FlatSteps(events)
    for step, success in enumerate([0.3, 0.31]):
        await events.emit("eval.done", {"step": step * 10, "success": success, "num_tasks": 20})
    assert not await steps.is_news(SOLVED)
    steps.varied()
    assert [await steps.is_news(SOLVED) for _ in range(11)] == [*[False] * 9, True, False]


@pytest.mark.parametrize("version", [b"1", b"2"], ids=["no_json", "newer"])
async def test_flat_step_when_an_event_cannot_be_read_then_it_is_news(
    redis: Redis, version: bytes
) -> None:
    events = EventLog(redis, "unit-1", source="trainer")
    for step, success in enumerate([0.3, 0.6]):
        await events.emit("eval.done", {"step": step * 10, "success": success, "num_tasks": 20})
    broken = pb.Event(type="eval.done", data_json="{").SerializeToString()
    await redis.xadd(keys.events("unit-1"), {VERSION_FIELD: version, FIELD: broken})
    assert await FlatSteps(events).is_news(SOLVED)


async def test_step_when_one_agent_of_two_learns_nothing_then_one_event_names_it(
    redis: Redis, tiny_model: Path, tmp_path: Path
) -> None:
    spec = job_spec(tiny_model)
    team = await Learners.load(spec, tmp_path, device="cpu", threads=1)
    events = EventLog(redis, "unit-1", source="trainer")
    journal = Checkpointing(spec, team, Checkpoints(tmp_path, spec), events)
    paid = {"tool": [1.0, 0.0, 0.0, 0.0], "planner": [0.0] * 4}
    try:
        for step in range(2):
            groups = [
                make_group(random.Random(task), step=step, task=task, agent=agent, rewards=rewards)
                for agent, rewards in paid.items()
                for task in range(3)
            ]
            for candidate in (candidate for group in groups for candidate in group.candidates):
                candidate.text = f"answer {candidate.index}"
            batch = Batch(step, {"shared": groups}, {})
            learned = await team.learn(batch)
            await journal.emit_sparse(step_report(batch, learned, 1.0), batch, learned)
    finally:
        team.close()
    (found,) = [stored.event for stored in await events.read()]
    assert found.type == "learning.sparse"
    sentence = json.loads(found.data_json)["sentence"]
    assert sentence.startswith("In step 1 every answer of agent 'planner' was paid 0 (3 groups)")
