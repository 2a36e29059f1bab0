"""Full weights into a real SGLang by torch.distributed (gloo): arrival, refusal, dead trainer."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sglang_world import CANARY, engine_settings, full_policies, request, until, worst

from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.errors import JobFailedError, TroupeError, VersionNotLoadedError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.weights import sums_in
from troupe.runtime.weights.group import WeightGroup
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.full import FullVersions
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Target

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(3600)]
RESTART_S = 900


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(
    sglang_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[SglangEngine]]:
    """Two servers with the base model."""
    folders = [tmp_path_factory.mktemp("work") for _ in range(2)]
    found = [SglangEngine(engine_settings(folder, start_timeout_s=900)) for folder in folders]
    await asyncio.gather(*(engine.start(full_policies(sglang_model)) for engine in found))
    yield found
    for engine in found:
        await engine.stop()


def broadcasts() -> BroadcastTransport:
    return BroadcastTransport(StreamTransport(), host="127.0.0.1", device="cpu", join_timeout_s=20)


def group_of(engine: SglangEngine) -> str:
    versions = engine._served["p"].versions
    assert isinstance(versions, FullVersions) and versions._membership._group is not None
    return versions._membership._group.name


def weight_files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.safetensors"))


async def check_serves(engine: SglangEngine, trainer: TinyTrainer, version: int) -> None:
    scores = await engine.score("p", version, CANARY)
    assert worst(scores, trainer.model.score(CANARY)) < 1e-4
    assert (await engine.generate(request(version))).policy_version == version


async def check_serves_nothing(engine: SglangEngine, *versions: int) -> None:
    """No mixture of two versions answers under any number."""
    [state] = engine.policies()
    assert (state.active_version, state.loaded_versions, state.staged_versions) == (None, (), ())
    for version in versions:
        with pytest.raises(VersionNotLoadedError):
            await engine.generate(request(version))


async def test_broadcast_when_servers_stay_then_one_group_serves_and_a_lost_server_is_sent_it_again(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    policies = full_policies(sglang_model)
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    async with (
        sidecar(engines[0], tmp_path / "in0", "r0") as first,
        sidecar(engines[1], tmp_path / "in1", "r1") as second,
    ):
        members = Members([first, second])
        publish = publisher(members, policies, RESTART_S, transport=broadcasts())
        groups = set[str]()
        for version in range(3):
            trainer.learn(version, size=0.02)
            await publish.publish(trainer.live(version))
            for engine in engines:
                await check_serves(engine, trainer, version)
                groups.add(group_of(engine))
        assert len(groups) == 1
        assert weight_files(tmp_path) == []

        os.kill(engines[0]._servers[0].pid, signal.SIGKILL)
        await until(lambda: not engines[0].is_ready(), 20, "the loss is noticed")
        await until(engines[0].is_ready, RESTART_S, "the engine is back")
        await check_serves_nothing(engines[0], 2)
        await publish._catch_up("p")
        await check_serves(engines[0], trainer, 2)
        trainer.learn(3, size=0.02)
        await publish.publish(trainer.live(3))
        for engine in engines:
            await check_serves(engine, trainer, 3)
        assert group_of(engines[0]) == group_of(engines[1]) not in groups
        await publish.close()


async def test_broadcast_when_the_canary_refuses_it_then_nothing_is_served_until_the_next(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    engine, policies = engines[1], full_policies(sglang_model)
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    async with sidecar(engine, tmp_path / "in", "r1") as replica:
        publish = publisher(Members([replica]), policies, RESTART_S, transport=broadcasts())
        await publish.publish(trainer.live(4))
        trainer.learn(11, size=0.02)
        export = trainer.live(5)
        export.canary_logprobs[3] -= 0.5
        with pytest.raises(JobFailedError, match=r"Replica r1 .* version 5 .*\n?.*canary"):
            await publish.publish(export)
        await check_serves_nothing(engine, 4, 5)
        await publish.publish(trainer.live(5))
        await check_serves(engine, trainer, 5)
        await publish.close()


_TRAINER = """
import sys
from datetime import timedelta
import torch
from torch.distributed import TCPStore, distributed_c10d
from troupe.runtime.weights.group import Broadcasts, WeightGroup, join_group

store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
print(store.port, flush=True)
group = WeightGroup("127.0.0.1", store.port, "dying", 2, 0, "gloo")
communicator = join_group(distributed_c10d, store, group, 0, timeout_s=60)
going = Broadcasts(distributed_c10d, communicator, timeout_s=60)
going.start(torch.zeros(eval(sys.argv[1])))
going.take()
print("half", flush=True)
sys.stdin.read()
"""


async def test_trainer_when_it_dies_in_mid_broadcast_then_nothing_is_served_until_the_next(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    engine, policies = engines[1], full_policies(sglang_model)
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    await engine.stage(trainer.staged(6))
    await engine.activate("p", 6)
    tensors = sums_in(trainer.live(7).manifest)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _TRAINER, str(tensors[0].shape)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    async with asyncio.timeout(60):
        port = int(await child.stdout.readline())
        group = WeightGroup("127.0.0.1", port, "dying", 2, 1, "gloo")
        weights = BroadcastWeights("p", 7, tensors, group, timeout_s=60)
        receiving = asyncio.ensure_future(engine.receive(weights))
        assert await child.stdout.readline() == b"half\n"
    child.kill()
    await child.wait()
    with pytest.raises(TroupeError):
        await receiving
    await check_serves_nothing(engine, 6, 7)
    await until(engine.is_ready, RESTART_S, "the engine is back")
    async with sidecar(engine, tmp_path / "in", "r1") as replica:
        publish = publisher(Members([replica]), policies, RESTART_S, transport=broadcasts())
        await publish.publish(trainer.live(7))
        await check_serves(engine, trainer, 7)
        await publish.close()


async def test_staged_broadcast_when_its_lease_ends_then_nothing_is_served_until_the_next(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    engine, policies = engines[0], full_policies(sglang_model)
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    async with sidecar(engine, tmp_path / "in", "r0", push_lease_s=2.0) as replica:
        transport, target = broadcasts(), Target("r0", replica.client)
        async with transport.session(trainer.live(9), [target], timeout_s=60) as send:
            await send(target)
        assert engine.policies()[0].staged_versions == (9,)
        # and nobody activates: the trainer is dead
        await until(lambda: not engine.policies()[0].staged_versions, 20, "the lease ends")
        await check_serves_nothing(engine, 8, 9)
        publish = publisher(Members([replica]), policies, RESTART_S, transport=transport)
        await publish.publish(trainer.live(9))
        await check_serves(engine, trainer, 9)
        await publish.close()
