"""Full weights into a real SGLang by torch.distributed (gloo): arrival, way back, dead trainer."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sglang_world import CANARY, engine_settings, full_policies, request, until, worst

from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.errors import JobFailedError, TroupeError, UnavailableError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.weights import sums_in
from troupe.runtime.weights.group import WeightGroup
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.full import FullVersions
from troupe_trainer.publish.broadcast import BroadcastTransport
from troupe_trainer.publish.stream import StreamTransport
from troupe_trainer.publish.transport import Target

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
RESTART_S = 240


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(
    sglang_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[SglangEngine]]:
    """Two servers with the base model."""
    found = [SglangEngine(engine_settings(tmp_path_factory.mktemp("work"))) for _ in range(2)]
    for engine in found:
        await engine.start(full_policies(sglang_model))
    yield found
    for engine in found:
        await engine.stop()


def broadcasts() -> BroadcastTransport:
    return BroadcastTransport(StreamTransport(), host="127.0.0.1", device="cpu", join_timeout_s=20)


def has_file(engine: SglangEngine, version: int) -> bool:
    versions = engine._served["p"].versions
    assert isinstance(versions, FullVersions)
    return versions._table.scoring(version).folder is not None


async def test_broadcast_reaches_two_servers_and_their_files_follow(
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
        for version in range(3):
            trainer.learn(version, size=0.02)
            await publish.publish(trainer.export(version))
            for engine in engines:
                scores = await engine.score("p", version, CANARY)
                assert worst(scores, trainer.model.score(CANARY)) < 1e-4
                assert (await engine.generate(request(version))).policy_version == version
                assert not has_file(engine, version), "it came by no file"
        await publish._catch_up("p")
        assert all(has_file(engine, 2) for engine in engines)

        # The file is what a server that is killed comes back with.
        os.kill(engines[0]._servers[0].pid, signal.SIGKILL)
        await until(lambda: not engines[0].is_ready(), 20, "the loss is noticed")
        await until(engines[0].is_ready, RESTART_S, "the engine is back")
        assert engines[0].policies()[0].active_version == 2
        scores = await engines[0].score("p", 2, CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4

        # Without one, the version is sent again by whoever watches.
        trainer.learn(3, size=0.02)
        await publish.publish(trainer.export(3))
        os.kill(engines[0]._servers[0].pid, signal.SIGKILL)
        await until(lambda: not engines[0].is_ready(), 20, "the loss is noticed")
        await until(engines[0].is_ready, RESTART_S, "the engine is back")
        assert engines[0].policies()[0].loaded_versions == ()
        await publish._catch_up("p")
        scores = await engines[0].score("p", 3, CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4
        await publish.close()


async def test_broadcast_that_the_canary_refuses_leaves_the_old_version_serving(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    engine, policies = engines[1], full_policies(sglang_model)
    trainer = TinyTrainer("p", policies["p"], tmp_path / "out")
    async with sidecar(engine, tmp_path / "in", "r1") as replica:
        members = Members([replica])
        await (by_file := publisher(members, policies, RESTART_S)).publish(trainer.export(4))
        publish = publisher(members, policies, RESTART_S, transport=broadcasts())
        trainer.learn(11, size=0.02)
        export = trainer.export(5)
        export.canary_logprobs[3] -= 0.5
        with pytest.raises(JobFailedError, match=r"Replica r1 .* version 5 .*\n?.*canary"):
            await publish.publish(export)
        assert (await engine.generate(request(4))).policy_version == 4
        trainer.learn(11, size=-0.02)
        scores = await engine.score("p", 4, CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4
        assert engine.policies()[0].staged_versions == ()
        await by_file.close()
        await publish.close()


_TRAINER = """
import sys
from datetime import timedelta
import torch
from torch.distributed import TCPStore, distributed_c10d
from troupe.runtime.weights.group import WeightGroup, broadcast, join_group

store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
print(store.port, flush=True)
group = WeightGroup("127.0.0.1", store.port, "dying", 2, 0, "gloo")
communicator = join_group(distributed_c10d, store, group, 0, timeout_s=60)
broadcast(distributed_c10d, communicator, torch.zeros(eval(sys.argv[1]))).wait()
print("half", flush=True)
sys.stdin.read()
"""


async def test_trainer_that_dies_in_mid_broadcast_leaves_the_old_version_serving(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    engine = engines[1]
    trainer = TinyTrainer("p", full_policies(sglang_model)["p"], tmp_path / "out")
    await engine.stage(trainer.staged(6))
    await engine.activate("p", 6)
    tensors = sums_in(trainer.export(7).manifest)
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
    waiting = asyncio.ensure_future(engine.generate(request(6)))
    child.kill()
    await child.wait()
    with pytest.raises(TroupeError):
        await receiving
    await until(engine.is_ready, RESTART_S, "the engine is back")
    with contextlib.suppress(UnavailableError):  # where the server had to be restarted
        assert (await waiting).policy_version == 6
    scores = await engine.score("p", 6, CANARY)
    assert worst(scores, trainer.model.score(CANARY)) < 1e-4
    assert engine.policies()[0].staged_versions == ()


async def test_staged_broadcast_holds_the_others_until_its_lease_ends(
    engines: list[SglangEngine], sglang_model: Path, tmp_path: Path
):
    engine = engines[0]
    trainer = TinyTrainer("p", full_policies(sglang_model)["p"], tmp_path / "out")
    async with sidecar(engine, tmp_path / "in", "r0", push_lease_s=2.0) as replica:
        export = trainer.export(8)
        await replica.client.send_weights(export.manifest, export.path)
        await replica.client.activate("p", 8)
        trainer.learn(3, size=0.02)
        export = trainer.export(9)
        transport = broadcasts()
        target = Target("r0", replica.client)
        async with transport.session(export, [target], timeout_s=60) as send:
            await send(target)
        assert engine.policies()[0].staged_versions == (9,)
        result = await engine.generate(request(8))  # and nobody activates: the trainer is dead
        assert result.policy_version == 8
        assert engine.policies()[0].staged_versions == ()
        trainer.learn(3, size=-0.02)
        scores = await engine.score("p", 8, CANARY)
        assert worst(scores, trainer.model.score(CANARY)) < 1e-4
