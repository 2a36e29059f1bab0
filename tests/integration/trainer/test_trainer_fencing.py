"""A trainer that was taken over from changes nothing; one version is one set of weights."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError
from no_memory import NoMemory
from redis.asyncio import Redis
from safetensors.torch import load_file, save_file
from trainer_data import groups_of_step, job_spec
from trainer_world import JOB, ReplicaServer, RouterServer, conduct, end, eventually, play

from troupe.api.rollout.v1.rollout_pb2_grpc import add_RolloutServiceServicer_to_server
from troupe.api.router.v1.router_pb2_grpc import add_RouterServiceServicer_to_server
from troupe.clients.router import RouterClient
from troupe.errors import FencedError, JobFailedError
from troupe.ids import train_round
from troupe.runtime.streams import keys
from troupe.runtime.streams.fencing import take_epoch
from troupe.runtime.streams.ledger import StepLedger
from troupe.spec.job import JobSpec
from troupe_trainer.control import Control, TrainerProgress
from troupe_trainer.job import TrainingJob
from troupe_trainer.learn import collector
from troupe_trainer.learn.collector import Collector
from troupe_trainer.settings import TrainerSettings

WITHIN_S = 60.0


@dataclass
class Site:
    """What two trainers of one job share: Redis, replica, router and run folder."""

    redis: Redis
    client: RouterClient
    replica: ReplicaServer
    spec: JobSpec
    run_dir: Path

    def trainer(
        self, control: Control | None = None, *, policy: str = ""
    ) -> tuple[TrainingJob, TrainerProgress]:
        progress = TrainerProgress()
        job = TrainingJob(
            JOB,
            self.spec,
            self.run_dir,
            TrainerSettings(),
            redis=self.redis,
            router=self.client,
            progress=progress,
            control=control or Control(),
            policy=policy,
        )
        return job, progress

    async def run_to_the_end(self) -> None:
        job, progress = self.trainer()
        task = asyncio.ensure_future(job.run())
        conductor = asyncio.ensure_future(conduct(self.redis, self.spec))
        try:
            await eventually(lambda: progress.phase == "done" or task.done(), WITHIN_S)
            if task.done():
                task.result()
        finally:
            await end(task, conductor)


@pytest.fixture
async def site(
    redis: Redis,
    grpc_servers: Callable[..., Awaitable[str]],
    tiny_model: Path,
    tmp_path: Path,
) -> AsyncIterator[Site]:
    replica, router = ReplicaServer(tiny_model), RouterServer()
    replica.address = await grpc_servers(
        lambda server: add_RolloutServiceServicer_to_server(replica, server)
    )
    router.replicas.append(replica)
    address = await grpc_servers(lambda server: add_RouterServiceServicer_to_server(router, server))
    client = RouterClient(address)
    spec = job_spec(tiny_model, steps=1, limits={"step_timeout_s": 120, "startup_timeout_s": 60})
    yield Site(redis, client, replica, spec, tmp_path / "run")
    await client.close()


async def test_trainer_when_another_took_over_then_it_stops_and_the_job_ends_with_the_other(
    site: Site,
) -> None:
    zombie, progress = site.trainer()
    sleeping = asyncio.ensure_future(zombie.run())
    await eventually(lambda: progress.phase == "collect", WITHIN_S)
    successor, done = site.trainer()
    working = asyncio.ensure_future(successor.run())
    try:
        with pytest.raises(FencedError, match="taken over"):
            await asyncio.wait_for(sleeping, WITHIN_S)
        with pytest.raises(FencedError):
            await zombie.fail("time passed while it stood still")
        await play(site.redis, 0)
        await eventually(lambda: done.phase == "done" or working.done(), WITHIN_S)
    finally:
        await end(sleeping, working)
    ledger = StepLedger(site.redis, JOB)
    assert await ledger.failure() is None
    assert await ledger.versions() == {"shared": 1}
    assert site.replica.active == 1
    assert await site.redis.xlen(keys.groups(JOB, "shared")) == 0


class Door(Control):
    """Tells when the trainer has all groups of a step and is about to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = asyncio.Event()

    async def gate(self) -> None:
        self.is_reached.set()
        await super().gate()


async def test_trainer_when_another_took_over_while_it_learnt_then_no_replica_gets_its_version(
    site: Site,
) -> None:
    site.spec = site.spec.model_copy(update={"steps": 2})
    door = Door()
    door.pause()
    zombie, progress = site.trainer(door)
    sleeping = asyncio.ensure_future(zombie.run())
    try:
        await eventually(lambda: progress.phase == "collect", WITHIN_S)
        await play(site.redis, 0)
        await asyncio.wait_for(door.is_reached.wait(), WITHIN_S)
        await StepLedger(site.redis, JOB).take("trainer", "its successor")
        door.resume()
        with pytest.raises(FencedError, match="taken over"):
            await asyncio.wait_for(sleeping, WITHIN_S)
    finally:
        await end(sleeping)
    assert set(site.replica.versions) == {0}
    assert site.replica.active == 0


async def _learnt_otherwise(site: Site) -> tuple[str, Path]:
    """A whole life, then a checkpoint with slightly other bits; the committed digest and file."""
    await site.run_to_the_end()
    digest = (await StepLedger(site.redis, JOB).digests())["shared"]
    (file,) = (site.run_dir / "publish").rglob("shared-v00001.safetensors")
    path = site.run_dir / "checkpoints" / "step-00001" / "shared.safetensors"
    tensors = load_file(path)
    name = next(n for n in sorted(tensors) if n.startswith("param/") and "lora_B" in n)
    tensors[name] = tensors[name] + 1e-7
    save_file(tensors, path)
    site.replica.restart()
    return digest, file


async def test_publish_when_learning_again_gave_other_bits_then_the_committed_ones_are_published(
    site: Site,
) -> None:
    digest, file = await _learnt_otherwise(site)
    await site.run_to_the_end()
    assert site.replica.versions == {1: digest}
    assert site.replica.active == 1
    assert await StepLedger(site.redis, JOB).digests() == {"shared": digest}
    # The new trainer has the file now, and the old one's is gone.
    (kept,) = (site.run_dir / "publish").rglob("shared-v00001.safetensors")
    assert kept != file


async def test_publish_when_the_committed_weights_are_gone_then_refuses_other_ones(
    site: Site,
) -> None:
    digest, file = await _learnt_otherwise(site)
    file.unlink()
    with pytest.raises(JobFailedError, match="does not have the committed file"):
        await site.run_to_the_end()
    assert site.replica.active is None
    assert await StepLedger(site.redis, JOB).digests() == {"shared": digest}


def _collector(redis: Redis) -> Collector:
    return Collector(redis, JOB, {"shared": 1000}, first_step=0, timeout_s=60.0, control=Control())


async def test_collect_when_killed_after_an_unreadable_group_then_the_next_life_counts_it_again(
    redis: Redis,
) -> None:
    """Two steps are there at once, and each has one group that can't be read."""
    for step in (0, 1):
        await play(redis, step)
        entries = await redis.xrange(keys.groups(JOB, "shared"))
        [(_, fields)] = entries[-1:]
        await redis.xdel(keys.groups(JOB, "shared"), entries[-1][0])
        broken = {"p": b"\xff" + fields[b"p"], "r": train_round(step)}
        await redis.xadd(keys.groups(JOB, "shared"), broken)
    num_groups = len(groups_of_step(0))
    for _ in range(2):
        life = _collector(redis)
        for step in (0, 1):
            batch = await life.collect(step)
            assert len(batch.groups["shared"]) == num_groups - 1
            assert dict(batch.dropped) == {"unreadable": 1}
        assert await redis.exists(keys.dead(keys.groups(JOB, "shared"))) == 0
    await life.ack_below(2)
    assert await redis.xlen(keys.groups(JOB, "shared")) == 0
    dead = await redis.xrange(keys.dead(keys.groups(JOB, "shared")))
    assert [fields[b"reason"] for _, fields in dead] == [b"not a Group"] * 2


async def test_collect_when_there_is_no_memory_to_read_a_group_then_the_next_life_reads_it(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(redis, 0)
    with monkeypatch.context() as patch:
        patch.setattr(collector, "pb", SimpleNamespace(Group=NoMemory))
        with pytest.raises(DecodeError):
            await _collector(redis).collect(0)
    batch = await _collector(redis).collect(0)
    assert (len(batch.groups["shared"]), dict(batch.dropped)) == (len(groups_of_step(0)), {})


async def test_collect_when_an_entry_is_of_no_round_then_parked_and_nobody_waits_less(
    redis: Redis,
) -> None:
    await redis.xadd(keys.groups(JOB, "shared"), {"p": b"\xff"})
    await play(redis, 0)
    batch = await _collector(redis).collect(0)
    assert [g.group_id for g in batch.groups["shared"]] == sorted(
        g.group_id for g in groups_of_step(0)
    )
    [(_, fields)] = await redis.xrange(keys.dead(keys.groups(JOB, "shared")))
    assert b"of no round" in fields[b"reason"]


async def test_trainer_when_policies_have_one_each_then_only_its_own_successor_takes_over(
    site: Site,
) -> None:
    apart = site.spec.trainer.model_copy(update={"per_policy": True})
    site.spec = site.spec.model_copy(update={"trainer": apart})
    zombie, progress = site.trainer(policy="shared")
    sleeping = asyncio.ensure_future(zombie.run())
    await eventually(lambda: progress.phase == "collect" or sleeping.done(), WITHIN_S)
    await take_epoch(site.redis, JOB, "trainer", "of another policy", policy="other")
    ledger = StepLedger(site.redis, JOB)
    assert not sleeping.done()
    successor, done = site.trainer(policy="shared")
    working = asyncio.ensure_future(successor.run())
    try:
        with pytest.raises(FencedError, match=r"trainer of policy 'shared' .*taken over"):
            await asyncio.wait_for(sleeping, WITHIN_S)
        await play(site.redis, 0)
        await eventually(lambda: done.phase == "done" or working.done(), WITHIN_S)
    finally:
        await end(sleeping, working)
    assert await ledger.versions() == {"shared": 1}
    assert await ledger.result() is None
    result = await ledger.result(site.spec.trainers())
    assert result is not None
    assert result["policies"].keys() == {"shared"}
    there = sorted(path.name for path in (site.run_dir / "checkpoints").rglob("step-*"))
    assert there == ["step-00001"]
    assert (site.run_dir / "groups-shared.jsonl").is_file()
    assert (site.run_dir / "checkpoints" / "policies" / "shared" / "step-00001").is_dir()
