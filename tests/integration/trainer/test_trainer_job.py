import asyncio
from pathlib import Path
from typing import Any

import pytest
from trainer_data import groups_of_step, job_spec
from trainer_world import JOB, World, conduct, end, eventually, play

from troupe.errors import JobFailedError
from troupe.runtime.streams import keys
from troupe.runtime.streams.ledger import StepLedger
from troupe_trainer.checkpoint import files as checkpoints_module
from troupe_trainer.checkpoint.checkpointing import Checkpointing
from troupe_trainer.checkpoint.files import Checkpoints
from troupe_trainer.control import Control, StoppedError
from troupe_trainer.learn import collector as collector_module
from troupe_trainer.learn.collector import Collector
from troupe_trainer.model.learner_state import CheckpointMismatchError


class Killed(Exception):
    """Stands for SIGKILL at one point."""


def numbers(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``reports`` without what depends on the machine: times and memory."""
    of_machine = {
        "phases",
        "overlap_s",
        "learned_ahead_s",
        "waited_s",
        "stage_s",
        "activate_s",
        "tokens_per_s",
        "trained_tokens_per_s",
        "peak_memory_bytes",
        "mfu",
    }
    return [{k: v for k, v in report.items() if k not in of_machine} for report in reports]


async def test_job_when_played_then_trains_publishes_and_exports(world: World) -> None:
    await world.run_to_the_end()
    ledger = StepLedger(world.redis, JOB)
    assert await ledger.versions() == {"shared": 3}
    assert world.replica.active == 3
    assert sorted(world.replica.versions) == [3], "nobody asks for the one before"
    assert (await ledger.digests())["shared"] == world.replica.versions[3]
    result = await ledger.result()
    assert result is not None
    for path in result["policies"]["shared"].values():
        assert (Path(path) / "config.json").is_file() or "adapter" in path
    assert await world.redis.xlen(keys.groups(JOB, "shared")) == 0
    want = [sorted(g.group_id for g in groups_of_step(step)) for step in range(3)]
    assert [line["group_ids"] for line in world.trained()] == want
    reports = await world.learned()
    assert [r["step"] for r in reports] == [0, 1, 2]
    for report in reports:
        assert report["groups_trained"] == 4
        assert report["groups_dropped"] == {}
        assert {"collect", "device", "learn", "checkpoint", "publish"} <= report["phases"].keys()
        assert report["trained_reward_by_agent"].keys() == {"tool", "planner"}
        assert report["grad_norm"] > 0
        assert report["entropy"] > 0
        assert report["stage_s"] > 0
        assert 0 < report["activate_s"] <= report["phases"]["publish"]


def _once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int, *, after: bool) -> None:
    """Raise Killed in the ``at``-th call of ``owner.name``, before or after its effect."""
    real, calls = getattr(owner, name), iter(range(1, 10**6))

    if asyncio.iscoroutinefunction(real):

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            is_it = next(calls) == at
            if is_it and not after:
                raise Killed(name)
            result = await real(*args, **kwargs)
            if is_it:
                raise Killed(name)
            return result
    else:

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            is_it = next(calls) == at
            if is_it and not after:
                raise Killed(name)
            result = real(*args, **kwargs)
            if is_it:
                raise Killed(name)
            return result

    monkeypatch.setattr(owner, name, wrapped)


POINTS = {
    "before the checkpoint": (Checkpoints, "save", 2, False),
    "inside the checkpoint": (checkpoints_module, "sync_tree", 2, True),
    "after the checkpoint": (Checkpoints, "save", 2, True),
    "before the commit": (StepLedger, "commit_version", 3, False),
    "after the commit": (StepLedger, "commit_version", 3, True),
    "before the ack": (Collector, "ack_below", 3, False),
    "before telling": (Checkpointing, "emit_learned", 2, False),
    "while collecting": (Collector, "collect", 2, True),
}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("point", POINTS)
async def test_job_when_killed_and_restarted_then_ends_bit_identical(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, every: int
) -> None:
    world.spec = world.spec.model_copy(
        update={"checkpoint": world.spec.checkpoint.model_copy(update={"every": every})}
    )
    await _compare(world, monkeypatch, point)


@pytest.mark.parametrize("point", ["inside the checkpoint", "after the commit"])
async def test_job_with_a_critic_when_killed_and_restarted_then_ends_bit_identical(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    critic = {"kind": "model", "train": {"kind": "lora", "rank": 4}}
    algorithm = {"kind": "ippo", "group_size": 4, "critic": critic}
    world.spec = job_spec(
        world.replica.model, steps=3, algorithm=algorithm, limits=world.spec.limits.model_dump()
    )
    await _compare(world, monkeypatch, point)
    assert any(name.startswith("critic.shared/") for name in world.weights())
    assert all("value_loss" in report for report in await world.learned())


async def _compare(world: World, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """A life that is killed at ``point`` and its successor leave what an undisturbed one does."""
    await world.run_to_the_end()
    weights, trained, told = world.weights(), world.trained(), await world.learned()

    await world.redis.flushall()
    world.replica.restart()
    world.run_dir = world.run_dir.with_name("again")
    owner, name, at, after = POINTS[point]
    if world.spec.checkpoint.every == 2 and owner is Checkpoints:
        at = 1
    with monkeypatch.context() as patch:
        _once(patch, owner, name, at, after=after)
        with pytest.raises(Killed):
            await world.run_to_the_end()
    await world.run_to_the_end()

    again = world.weights()
    assert weights.keys() == again.keys()
    assert all(weights[n].equal(again[n]) for n in weights)
    assert world.trained() == trained
    assert numbers(await world.learned()) == numbers(told)
    assert [report["step"] for report in told] == [0, 1, 2]
    assert await world.redis.xlen(keys.groups(JOB, "shared")) == 0
    assert world.replica.active == 3


@pytest.mark.parametrize("is_acked", [False, True])
async def test_job_when_redis_is_full_and_no_round_opens_then_frees_it_and_ends_bit_identical(
    world: World, monkeypatch: pytest.MonkeyPatch, is_acked: bool
) -> None:
    monkeypatch.setattr(collector_module, "UNOPENED_S", 0.05)
    rare = world.spec.checkpoint.model_copy(update={"every": 100})
    world.spec = world.spec.model_copy(update={"checkpoint": rare})
    await world.run_to_the_end()
    weights, trained = world.weights(), world.trained()

    await world.redis.flushall()
    world.replica.restart()
    world.run_dir = world.run_dir.with_name("again")
    with monkeypatch.context() as patch:
        # The first call is at the start, the second after the step.
        _once(patch, Collector, "ack_below", 3, after=is_acked)
        task = asyncio.ensure_future(world.job().run())
        await eventually(lambda: world.replica.active == 0)
        await play(world.redis, 0)
        await eventually(lambda: world.replica.active == 1)
        # Made by the server: a client's buffer would count as used for a while.
        await world.redis.setrange("ballast", (32 << 20) - 1, "x")
        used = int((await world.redis.info("memory"))["used_memory"])
        await world.redis.config_set("maxmemory", int(used / 0.93))
        try:
            with pytest.raises(Killed):
                await asyncio.wait_for(task, 20)
        finally:
            await world.redis.config_set("maxmemory", 0)
    assert [p.name for p in (world.run_dir / "checkpoints").iterdir()] == ["step-00001"]
    assert (await world.redis.xlen(keys.groups(JOB, "shared")) == 0) == is_acked
    await world.run_to_the_end()

    again = world.weights()
    assert weights.keys() == again.keys()
    assert all(weights[n].equal(again[n]) for n in weights)
    assert world.trained() == trained


async def test_job_when_a_replica_restarts_after_the_end_then_gets_the_version_again(
    world: World,
) -> None:
    task = asyncio.ensure_future(world.job().run())
    conductor = asyncio.ensure_future(conduct(world.redis, world.spec))
    await eventually(lambda: world.progress.phase == "done")
    world.replica.restart()
    await eventually(lambda: world.replica.active == 3)
    assert world.replica.calls.count("activate 3") == 2
    await end(task, conductor)


async def test_job_when_the_canary_differs_then_old_version_serves_and_the_job_fails(
    world: World,
) -> None:
    conductor = asyncio.ensure_future(conduct(world.redis, world.spec))
    task = asyncio.ensure_future(world.job().run())
    await eventually(lambda: world.replica.active == 0)
    world.replica.score_offset = 0.01
    with pytest.raises(JobFailedError, match=r"rollout-0 .* canary"):
        await asyncio.wait_for(task, 30)
    await end(conductor)
    version = (await StepLedger(world.redis, JOB).versions())["shared"]
    assert world.replica.active == version
    assert version + 1 not in world.replica.versions


async def test_job_when_a_digest_is_wrong_once_then_stages_again(world: World) -> None:
    world.replica.wrong_digests = 1
    await world.run_to_the_end()
    assert world.replica.calls.count("stage 0") == 2
    assert world.replica.calls.count("activate 0") == 1


async def test_job_when_a_replica_is_away_for_a_moment_then_waits_for_it(world: World) -> None:
    world.replica.refusals = 2
    await world.run_to_the_end()
    assert world.replica.active == 3


async def test_job_when_its_weights_are_large_then_a_push_has_time_for_their_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troupe.spec.deadlines.SLOWEST_BYTES_PER_S", 100.0)
    await world.run_to_the_end()
    for size_bytes, to_receive_s, to_activate_s in world.replica.given_s:
        assert size_bytes > 1000
        assert to_receive_s == pytest.approx(5 + size_bytes / 100, abs=5)
        assert to_activate_s == pytest.approx(60 + size_bytes / 100, abs=5)


async def test_job_when_no_replica_comes_then_fails_and_says_which_policy(world: World) -> None:
    world.router.replicas.clear()
    world.spec = world.spec.model_copy(
        update={"limits": world.spec.limits.model_copy(update={"startup_timeout_s": 0.3})}
    )
    with pytest.raises(JobFailedError, match="'shared' has 0 of 1"):
        await asyncio.wait_for(world.job().run(), 20)


async def test_job_when_the_round_never_opens_then_fails_and_says_so(world: World) -> None:
    world.spec = world.spec.model_copy(
        update={"limits": world.spec.limits.model_copy(update={"step_timeout_s": 0.3})}
    )
    with pytest.raises(JobFailedError, match="train-00000 was never opened"):
        await asyncio.wait_for(world.job().run(), 20)


async def test_job_when_stopped_then_saves_a_checkpoint_and_goes_on_later(world: World) -> None:
    world.spec = world.spec.model_copy(
        update={"checkpoint": world.spec.checkpoint.model_copy(update={"every": 100})}
    )
    control = Control()
    task = asyncio.ensure_future(world.job(control=control).run())
    await eventually(lambda: world.replica.active == 0)
    await play(world.redis, 0)
    await eventually(lambda: world.replica.active == 1)
    control.stop("a test")
    with pytest.raises(StoppedError):
        await asyncio.wait_for(task, 20)
    assert [p.name for p in (world.run_dir / "checkpoints").iterdir()] == ["step-00001"]
    await world.run_to_the_end()
    assert [line["step"] for line in world.trained()] == [0, 1, 2]


async def test_job_when_paused_then_does_not_learn_until_resumed(world: World) -> None:
    control = Control()
    control.pause()
    task = asyncio.ensure_future(world.job(control=control).run())
    await eventually(lambda: world.replica.active == 0)
    await play(world.redis, 0)
    await asyncio.sleep(0.3)  # nothing may happen in this time
    assert (await StepLedger(world.redis, JOB).versions()) == {"shared": 0}
    control.resume()
    await eventually(lambda: world.replica.active == 1)
    await end(task)


async def test_job_when_the_checkpoint_is_of_another_spec_then_refuses(world: World) -> None:
    await world.run_to_the_end()
    other = world.spec.model_copy(update={"seed": 99})
    with pytest.raises(CheckpointMismatchError, match="another spec"):
        await asyncio.wait_for(world.job(other).run(), 20)
