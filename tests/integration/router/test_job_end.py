"""How a job ends: its deadlines name who is waited for, and no lost message delays it."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from job_world import JOB, IdleLauncher, World, job_spec, tickets
from redis.asyncio import Redis

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.router.v1 import router_pb2 as pb
from troupe.ids import train_round
from troupe.runtime.launch.launcher import PULLING, QUEUED, Component, ComponentStatus
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe_router.run.record_file import RecordFile
from troupe_router.run.recorder import Recorder

EVERY_KIND = (pb.REPLICA_KIND_TRAINER, pb.REPLICA_KIND_ENV, pb.REPLICA_KIND_ROLLOUT)


@pytest.fixture
def world(redis: Redis, tmp_path: Path) -> World:
    return World(redis, tmp_path / "runs")


async def test_job_when_nothing_comes_up_in_time_then_fails_and_names_every_service(
    world: World,
) -> None:
    spec = job_spec(limits={"startup_timeout_s": 0.5})
    ended = await world.drive(await world.add_job(spec, "launching"))
    assert ended.state == "failed"
    assert "limits.startup_timeout_s = 0.5 s" in ended.reason
    for name in (
        "the trainer [trainer-0 is running]",
        "env (0 of 1 serve) [env-0 is running]",
        "rollout of policy 'p' (0 of 1 serve) [rollout-p-0 is running]",
    ):
        assert name in ended.reason


class QueueLauncher(IdleLauncher):
    """Holds every component in a queue for ``held_s``."""

    def __init__(self, held_s: float) -> None:
        self._until = time.monotonic() + held_s

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        if time.monotonic() > self._until:
            return await super().reconcile(owner, desired)
        return [
            ComponentStatus(c.name, "waiting", None, 0, None, "no room", QUEUED) for c in desired
        ]


async def test_job_when_a_queue_holds_it_then_no_deadline_counts_meanwhile(world: World) -> None:
    spec = job_spec(limits={"startup_timeout_s": 0.5})
    record = await world.add_job(spec, "launching")
    world.launcher, began = QueueLauncher(2.0), time.monotonic()
    ended = await world.drive(record)
    assert ended.state == "failed"
    assert "limits.startup_timeout_s = 0.5 s" in ended.reason
    assert time.monotonic() - began > 2.0
    events = await EventLog(world.redis, JOB, source="test").read("0")
    queued = [e.event for e in events if e.event.type == "component.condition"]
    assert {json.loads(e.data_json)["condition"] for e in queued} == {"Queued"}


async def test_job_when_a_queue_holds_it_for_too_long_then_fails_and_says_what_to_do(
    world: World,
) -> None:
    spec = job_spec(limits={"startup_timeout_s": 60.0, "queue_timeout_s": 0.3})
    world.launcher = QueueLauncher(60.0)
    ended = await world.drive(await world.add_job(spec, "launching"))
    assert ended.state == "failed"
    assert "limits.queue_timeout_s = 0.3 s: no room. Give the queue room" in ended.reason


class PullLauncher(QueueLauncher):
    """Has nodes pull every image for ``held_s``; the queue holds the envs back meanwhile."""

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        return [
            replace(status, condition=PULLING, detail="pulls")
            if status.condition == QUEUED and "env" not in status.name
            else status
            for status in await super().reconcile(owner, desired)
        ]


async def test_job_when_its_images_are_pulled_then_only_the_limit_of_pulls_counts(
    world: World,
) -> None:
    record = await world.add_job(job_spec(limits={"startup_timeout_s": 0.5}), "launching")
    world.launcher, began = PullLauncher(2.0), time.monotonic()
    ended = await world.drive(record)
    assert "limits.startup_timeout_s = 0.5 s" in ended.reason
    assert time.monotonic() - began > 2.0


async def test_job_when_its_images_are_pulled_for_too_long_then_fails_and_names_the_limit(
    world: World,
) -> None:
    spec = job_spec(limits={"startup_timeout_s": 60.0, "image_pull_timeout_s": 0.3})
    world.launcher = PullLauncher(60.0)
    ended = await world.drive(await world.add_job(spec, "launching"))
    assert ended.state == "failed"
    assert "trainer-0, rollout-p-0 waited with the condition ImagePulling" in ended.reason
    assert "limits.image_pull_timeout_s = 0.3 s: pulls. Have the nodes pull" in ended.reason


class HalfQueuedLauncher(QueueLauncher):
    """Holds all but the trainer, whose image nobody has."""

    async def reconcile(self, owner: str, desired: Sequence[Component]) -> list[ComponentStatus]:
        return [
            replace(status, condition="ImagePullFailed") if "trainer" in status.name else status
            for status in await super().reconcile(owner, desired)
        ]


async def test_job_when_something_else_than_its_queue_halts_it_too_then_its_deadline_counts(
    world: World,
) -> None:
    spec = job_spec(limits={"startup_timeout_s": 0.5, "queue_timeout_s": 60.0})
    world.launcher = HalfQueuedLauncher(60.0)
    ended = await world.drive(await world.add_job(spec, "launching"))
    assert "limits.startup_timeout_s = 0.5 s" in ended.reason
    assert "ImagePullFailed" in ended.reason


async def test_job_when_a_queue_takes_it_back_in_a_step_then_the_step_has_its_time_afterwards(
    world: World,
) -> None:
    limits = {"step_timeout_s": 0.5, "env_timeout_s": 0.3, "max_attempts": 50}
    record = await world.add_job(job_spec(steps=1, limits=limits), "running")
    await world.ledger.commit_version("p", 0, "d")
    world.launcher, began = QueueLauncher(2.0), time.monotonic()
    ended = await world.drive(record)
    assert "waited longer than limits.step_timeout_s = 0.5 s" in ended.reason
    assert time.monotonic() - began > 2.0


async def test_job_when_the_first_version_does_not_come_then_fails_and_names_the_trainer(
    world: World,
) -> None:
    spec = job_spec(limits={"startup_timeout_s": 0.5})
    record = await world.add_job(spec, "launching")
    await world.add_members(*EVERY_KIND)
    ended = await world.drive(record)
    assert ended.state == "failed"
    assert "missing: the trainer's first version of policy 'p'." in ended.reason


async def test_job_when_a_round_is_not_played_in_time_then_fails_and_names_tickets_and_cause(
    world: World,
) -> None:
    limits = {"step_timeout_s": 2.0, "env_timeout_s": 0.3, "max_attempts": 50}
    record = await world.add_job(job_spec(steps=1, limits=limits), "running")
    await world.add_members(*EVERY_KIND)
    await world.ledger.commit_version("p", 0, "d")
    ended = await world.drive(record)
    assert ended.state == "failed"
    assert "limits.step_timeout_s = 2 s for 3 of 3 tickets of train-00000" in ended.reason
    assert "UNAVAILABLE: no env replica serves within 0.3 s" in ended.reason


async def test_job_when_the_trainer_does_not_learn_in_time_then_fails_and_names_it(
    world: World,
) -> None:
    limits = {"step_timeout_s": 2.0, "env_timeout_s": 30.0}
    record = await world.add_job(job_spec(steps=1, limits=limits), "running")
    await world.add_members(pb.REPLICA_KIND_ENV, pb.REPLICA_KIND_ROLLOUT)
    await world.ledger.commit_version("p", 0, "d")
    playing = asyncio.create_task(_play_all(world))
    ended = await world.drive(record)
    await playing
    assert ended.state == "failed"
    assert "limits.step_timeout_s = 2 s for the trainer to publish version 1 of p" in ended.reason
    assert "not serving: the trainer [trainer-0 is running]" in ended.reason


async def _play_all(world: World) -> None:
    """Complete every ticket of the first round as another router would."""
    async with asyncio.timeout(20):
        while await world.ledger.round(train_round(0)) is None:
            await world.ledger.wait_change(0.1)
    for _, fields in await world.redis.xrange(keys.tickets(JOB)):
        ticket = records.Ticket.FromString(fields[b"p"])
        episode = records.Episode(episode_id=ticket.ticket_id, round_id=ticket.round_id)
        await world.ledger.complete_ticket(ticket, "", [], episode)


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_job_when_the_trainer_went_on_while_no_router_was_there_then_the_step_is_recorded(
    world: World, is_recorded: bool
) -> None:
    record = await world.add_job(job_spec(steps=1), "running")
    await world.ledger.commit_version("p", 0, "d")
    opened = tickets(train_round(0), 3)
    await world.ledger.open_round(train_round(0), records.ROUND_KIND_TRAIN, 0, opened)
    await _play_all(world)
    if is_recorded:
        await world.store.note(JOB, "play:0", {"opened_at": 1.0, "num_episodes": 3})
        await world.ledger.mark_recorded(train_round(0))
    await EventLog(world.redis, JOB, source="trainer").emit("step.learned", {"step": 0})
    await world.ledger.commit_version("p", 1, "e")
    await world.ledger.set_result({"step": 1})
    ended = await world.drive(record)
    assert ended.state == "succeeded", ended.reason
    [line] = (record.run_dir / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 0
    if not is_recorded:
        assert len((record.run_dir / "episodes.jsonl").read_text().splitlines()) == 3


async def test_job_when_two_steps_were_learnt_while_no_router_was_there_then_both_are_recorded(
    world: World,
) -> None:
    record = await world.add_job(job_spec(steps=2), "running")
    await world.store.note(JOB, "play:0", {"opened_at": 1.0, "num_episodes": 3})
    log = EventLog(world.redis, JOB, source="trainer")
    for step in (0, 1):
        opened = tickets(train_round(step), 3, step)
        await world.ledger.open_round(train_round(step), records.ROUND_KIND_TRAIN, step, opened)
        for ticket in opened:
            episode = records.Episode(episode_id=ticket.ticket_id, round_id=ticket.round_id)
            await world.ledger.complete_ticket(ticket, "", [], episode)
        await log.emit("step.learned", {"step": step})
    await world.ledger.mark_recorded(train_round(0))
    await world.ledger.commit_version("p", 2, "e")
    await world.ledger.set_result({"step": 2})
    ended = await world.drive(record)
    assert ended.state == "succeeded", ended.reason
    lines = (record.run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1]


async def test_job_when_the_export_does_not_come_in_time_then_fails_and_says_so(
    world: World,
) -> None:
    record = await world.add_job(job_spec(limits={"step_timeout_s": 0.5}), "running")
    await world.ledger.commit_version("p", 0, "d")
    ended = await world.drive(record)
    assert ended.state == "failed"
    assert "the trainer to export the trained policies" in ended.reason


async def _set_without_a_word(world: World) -> None:
    """Version and result as the trainer writes them, with every notification lost."""
    ledger = keys.ledger(JOB)
    for values in ({"version:p": "0"}, {"result": json.dumps({"step": 0})}):
        await asyncio.sleep(0.3)
        await world.redis.hset(ledger, mapping=values)
    assert not await world.redis.exists(keys.changes(JOB))


async def test_job_when_every_notification_is_lost_then_it_still_ends(world: World) -> None:
    record = await world.add_job(job_spec(), "running")
    began = time.monotonic()
    telling = asyncio.create_task(_set_without_a_word(world))
    ended = await world.drive(record)
    await telling
    assert (ended.state, ended.reason) == ("succeeded", "")
    assert time.monotonic() - began < 15


async def test_job_when_the_last_round_completes_unheard_then_it_still_ends(world: World) -> None:
    record = await world.add_job(job_spec(steps=1), "running")
    await world.ledger.commit_version("p", 0, "d")

    async def finish_unheard() -> None:
        async with asyncio.timeout(20):
            while await world.ledger.round(train_round(0)) is None:
                await world.ledger.wait_change(0.1)
            await asyncio.sleep(0.5)  # the conductor waits by then
            await world.redis.hset(keys.round_state(JOB, train_round(0)), "num_done", "3")
            while not (state := await world.ledger.round(train_round(0))) or not state.is_recorded:
                await world.ledger.wait_change(0.1)
        await asyncio.sleep(0.5)
        after = {"version:p": "1", "result": json.dumps({"step": 1})}
        await world.redis.hset(keys.ledger(JOB), mapping=after)

    finishing = asyncio.create_task(finish_unheard())
    ended = await world.drive(record)
    await finishing
    assert ended.state == "succeeded", ended.reason


async def test_job_when_a_library_swallows_a_cancellation_then_it_still_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallowed: list[int] = []

    async def stubborn(_: Recorder) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(1)
        await asyncio.Event().wait()

    monkeypatch.setattr(Recorder, "run", stubborn)
    record = await world.add_job(job_spec(), "running")
    await world.ledger.commit_version("p", 0, "d")
    await world.ledger.set_result({"step": 0})
    ended = await world.drive(record)
    assert (ended.state, swallowed) == ("succeeded", [1])


async def test_job_when_cancelled_before_a_complete_round_is_recorded_then_its_measures_are_kept(
    world: World,
) -> None:
    record = await world.add_job(job_spec(steps=2), "launching")  # nothing serves: no conductor
    await world.ledger.commit_version("p", 0, "d")
    opened = tickets(train_round(0), 3)
    await world.ledger.open_round(train_round(0), records.ROUND_KIND_TRAIN, 0, opened)
    await _play_all(world)
    await world.store.transition(JOB, "cancelling")
    ended = await world.drive(record)
    assert ended.state == "cancelled"
    assert "play:0" in await world.store.notes(JOB)
    assert len((record.run_dir / "episodes.jsonl").read_text().splitlines()) == 3


class SlowLauncher(IdleLauncher):
    """Ending the processes takes until ``go``."""

    def __init__(self) -> None:
        self.stopping, self.go = asyncio.Event(), asyncio.Event()

    async def stop(self, owner: str, *, grace_s: float) -> None:
        self.stopping.set()
        await self.go.wait()


@pytest.mark.parametrize("state", ["succeeded", "failed"])
async def test_job_when_cancelled_while_its_processes_end_then_its_summary_says_what_it_became(
    world: World, state: str
) -> None:
    record = await world.add_job(job_spec(), "running")
    await world.ledger.commit_version("p", 0, "d")
    if state == "succeeded":
        await world.ledger.set_result({"step": 0})
    else:
        await world.ledger.fail("it can't go on")
    world.launcher = launcher = SlowLauncher()
    driving = asyncio.create_task(world.drive(record))
    async with asyncio.timeout(20):
        await launcher.stopping.wait()
    await world.store.transition(JOB, "cancelling", reason="cancelled by the user")
    launcher.go.set()
    ended = await driving
    summary = json.loads((record.run_dir / "summary.json").read_text())
    assert (ended.state, summary["state"]) == (state, state)
    assert ended.reason == summary["reason"]


@pytest.mark.parametrize("was_launching", [False, True])
async def test_job_when_cancelled_before_its_files_are_read_then_the_summary_is_that_of_its_files(
    world: World, was_launching: bool
) -> None:
    record = await world.add_job(job_spec(steps=2), "launching")  # nothing serves: no conductor
    _record_a_step(record.run_dir)
    cancelling = await world.store.transition(JOB, "cancelling")
    ended = await world.drive(record if was_launching else cancelling)
    assert ended.state == "cancelled"
    summary = json.loads((record.run_dir / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["tokens"]) == ("cancelled", 1, 300)
    assert (summary["base_success"], summary["num_eval"]) == (0.25, 8)
    assert summary["groups_trained"] == 12
    assert [loss["part"] for loss in summary["records_lost"]] == ["train-00001"]


async def test_job_when_its_lines_are_not_those_of_troupe_then_it_ends_all_the_same(
    world: World,
) -> None:
    await world.add_job(job_spec(steps=2), "running")
    record = await world.store.transition(JOB, "cancelling")
    (record.run_dir / "metrics.jsonl").write_text('{"kind": "train", "step": 0}\n{"a": 1}\n')
    assert (await world.drive(record)).state == "cancelled"
    assert json.loads((record.run_dir / "summary.json").read_text())["steps"] == 0


def _record_a_step(run_dir: Path) -> None:
    """The base's evaluation and step 0, of which step 1 was lost."""
    evaluation = {"kind": "eval", "step": 0, "success": 0.25, "num_tasks": 8}
    step = {"kind": "train", "step": 0, "wall_s": 1.0, "num_tokens": 300, "groups_trained": 12}
    step["phases"] = {"generate": 0.5, "learn": 0.2}
    metrics = RecordFile(run_dir / "metrics.jsonl")
    for name, line in (("eval-00000", evaluation), ("train-00000", step)):
        metrics.append(name, [json.dumps(line).encode() + b"\n"])
    metrics.mark_lost(["train-00001"])
