"""One publish over each transport to two replicas of the cpu engine: result, proof, failure."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from weight_fleet import Fleet

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.router.v1.router_pb2 import Replica
from troupe.errors import InvalidArgumentError, JobFailedError, WeightsRejectedError
from troupe.runtime.engines.engine import StagedWeights
from troupe_rollout.engines.cpu import engine as cpu_engine
from troupe_rollout.engines.cpu.blocks import WeightBlocks
from troupe_rollout.engines.cpu.model import CpuModel

TRANSPORTS = ["grpc", "store", "distributed"]


@pytest.mark.parametrize("via", TRANSPORTS)
async def test_publish_reaches_every_replica_with_proof(fleet: Fleet, via: str, tmp_path: Path):
    publish = fleet.publisher(via)
    for version in range(3):
        fleet.trainer.learn(version)
        export = fleet.export(version, via)
        await publish.publish(export)
        await publish.forget_before("p", version)  # its version is committed
        assert await fleet.serving() == [(version, ())] * 2
        for replica in fleet.replicas:
            assert replica.engine.policies()[0].loaded_versions == (version,)
            scores = await replica.client.score("p", version, export.canary.token_ids)
            assert scores == pytest.approx(export.canary_logprobs, abs=1e-4)
    for results in fleet.notes.results:
        assert [a.replica for a in results] == ["r0", "r1"]
        assert all(min(a.transfer_s, a.canary_s, a.activate_s) > 0 for a in results)
        assert all(a.canary_error < 1e-4 for a in results)
    assert {a.tensor_digest for a in fleet.notes.results[2]} == {export.manifest.tensor_digest}
    left = sorted(p.name.split("-")[0] for p in fleet.store.rglob("*") if p.is_file())
    assert left == (["v00002", "v00002"] if via == "store" else [])
    assert [p for name in ("r0", "r1") for p in (tmp_path / name).rglob("*.safetensors")] == []
    await publish.close()


@pytest.mark.parametrize("train", ["lora"], indirect=True)
@pytest.mark.parametrize("via", TRANSPORTS)
async def test_adapter_arrives_whatever_carries_full_weights(fleet: Fleet, via: str):
    publish = fleet.publisher(via)
    for version in range(2):
        fleet.trainer.learn(version)
        await publish.publish(fleet.trainer.export(version))
    assert await fleet.serving() == [(1, ())] * 2
    await publish.close()


@pytest.mark.parametrize("train", ["lora"], indirect=True)
async def test_replica_that_is_to_receive_an_adapter_by_broadcast_refuses(fleet: Fleet):
    manifest = fleet.trainer.export(0).manifest
    source = pb.BroadcastWeights(host="127.0.0.1", port=1, group="g", world_size=2, backend="gloo")
    with pytest.raises(InvalidArgumentError, match="An adapter can't come by torch"):
        await fleet.replicas[0].client.send_weights(manifest, source, 5.0)


@pytest.mark.parametrize("via", TRANSPORTS)
async def test_tensor_that_changed_in_one_engine_fails_the_publish_and_is_named(
    fleet: Fleet, via: str, monkeypatch: pytest.MonkeyPatch
):
    publish = fleet.publisher(via)
    await publish.publish(fleet.export(0, via))
    real = cpu_engine.build_module

    def change_and_build(
        base: CpuModel,
        weights: StagedWeights,
        tensors: Iterable[tuple[str, Tensor]],
        blocks: WeightBlocks,
    ) -> object:
        def changed() -> Iterator[tuple[str, Tensor]]:
            for name, tensor in tensors:
                yield name, tensor + 1.0 if name == "model.norm.weight" else tensor

        return real(base, weights, changed(), blocks)

    monkeypatch.setattr(cpu_engine, "build_module", change_and_build)
    fleet.trainer.learn(1)
    words = r"Replica r[01] does not take version 1 of policy 'p'.*tensor 'model.norm.weight'"
    with pytest.raises(JobFailedError, match=words):
        await publish.publish(fleet.export(1, via))
    monkeypatch.undo()
    assert [r.tensor for r in fleet.notes.refusals] == ["model.norm.weight"]
    assert await fleet.serving() == [(0, ())] * 2
    await publish.publish(fleet.export(1, via))
    assert await fleet.serving() == [(1, ())] * 2
    await publish.close()


async def test_canary_of_another_model_fails_the_publish_and_nothing_is_activated(fleet: Fleet):
    publish = fleet.publisher("grpc")
    await publish.publish(fleet.trainer.export(0))
    fleet.trainer.learn(1)
    export = fleet.trainer.export(1)
    export.canary_logprobs[5] -= 0.01
    with pytest.raises(JobFailedError, match="no single tensor is at fault"):
        await publish.publish(export)
    assert await fleet.serving() == [(0, ())] * 2
    assert [(r.tensor, r.replica in ("r0", "r1")) for r in fleet.notes.refusals] == [("", True)]
    assert fleet.notes.refusals[0].canary_error == pytest.approx(0.01, abs=1e-4)
    await publish.close()


@pytest.mark.parametrize("via", TRANSPORTS)
async def test_late_joiner_is_brought_to_the_current_version(fleet: Fleet, via: str):
    late = fleet.replicas[1]
    late.is_listed = False
    publish = fleet.publisher(via)
    await publish.publish(fleet.export(3, via))
    assert [active for active, _ in await fleet.serving()] == [3, None]
    late.is_listed = True
    await publish._catch_up("p")
    assert await fleet.serving() == [(3, ())] * 2
    assert [a.replica for a in fleet.notes.late] == ["r1"]
    await publish._catch_up("p")
    assert len(fleet.notes.late) == 1, "it is sent once"
    await publish.close()


async def test_late_replica_when_it_rejects_the_version_then_is_left_alone_until_the_next(
    fleet: Fleet,
):
    late, publish = fleet.replicas[1], fleet.publisher("grpc")
    late.is_listed = False
    export = fleet.trainer.export(0)
    await publish.publish(export)
    late.is_listed = True
    right, export.canary_logprobs[5] = export.canary_logprobs[5], 1.0
    for _ in range(4):
        await publish._catch_up("p")
    assert [refusal.replica for refusal in fleet.notes.refusals] == ["r1"]
    export.canary_logprobs[5] = right
    await publish._catch_up("p")
    assert [active for active, _ in await fleet.serving()] == [0, None]
    fleet.trainer.learn(1)
    await publish.publish(fleet.trainer.export(1))
    assert [active for active, _ in await fleet.serving()] == [1, 1]
    await publish.close()


async def test_late_replica_when_the_next_version_is_committed_then_it_unloads_what_it_had(
    fleet: Fleet,
):
    late, publish = fleet.replicas[1], fleet.publisher("grpc")
    for version in range(3):
        late.is_listed = version != 1
        fleet.trainer.learn(version)
        await publish.publish(fleet.trainer.export(version))
        late.is_listed = True
        await publish.forget_before("p", version)  # of 1: version 0 is the late one's active one
        await publish._catch_up("p")
    assert late.engine.policies()[0].loaded_versions == (2,)
    await publish.close()


async def test_version_before_the_committed_one_when_rounds_may_be_stale_is_kept(fleet: Fleet):
    publish = fleet.publisher("grpc")
    publish._spec = publish._spec.model_copy(update={"max_staleness": 1})
    for version in range(4):
        fleet.trainer.learn(version)
        await publish.publish(fleet.trainer.export(version))
        await publish.forget_before("p", version)
    held = [replica.engine.policies()[0].loaded_versions for replica in fleet.replicas]
    assert held == [(2, 3)] * 2
    await publish.close()


async def test_heartbeat_older_than_the_push_when_it_is_seen_then_nothing_is_sent_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    publish, sent = fleet.publisher("grpc"), list[int]()
    await publish.publish(fleet.trainer.export(0))
    heartbeats = await fleet.members.list_replicas("job", 0)
    fleet.trainer.learn(1)
    await publish.publish(fleet.trainer.export(1))
    for replica in fleet.replicas:
        stage = replica.engine.stage

        async def noted(weights: StagedWeights, stage: Any = stage) -> str:
            sent.append(weights.policy_version)
            return await stage(weights)

        monkeypatch.setattr(replica.engine, "stage", noted)

    async def old(job_id: str, kind: int) -> list[Replica]:
        return heartbeats

    monkeypatch.setattr(fleet.members, "list_replicas", old)
    await publish._catch_up("p")
    assert sent == [] and fleet.notes.late == []
    for replica in fleet.replicas:
        replica.engine._tables["p"].lose(1)  # pyright: ignore
    await publish._catch_up("p")
    assert sent == [1, 1], "one that has lost it is sent it again"
    assert await fleet.serving() == [(1, ())] * 2
    await publish.close()


async def test_staged_version_whose_trainer_is_gone_is_dropped_when_its_lease_ends(fleet: Fleet):
    await (publish := fleet.publisher("grpc")).publish(fleet.trainer.export(0))
    fleet.trainer.learn(1)
    export = fleet.trainer.export(1)
    replica = fleet.replicas[0]
    await replica.client.send_weights(export.manifest, export.path)
    assert (await fleet.serving())[0] == (0, (1,))
    async with asyncio.timeout(30):
        while (await fleet.serving())[0] != (0, ()):  # noqa: ASYNC110 - another's clock
            await asyncio.sleep(0.05)
    # Whoever publishes next is not hindered, also when the lease ends between its two phases.
    await publish.publish(export)
    assert await fleet.serving() == [(1, ())] * 2
    await publish.close()


async def test_lease_that_ends_before_the_activation_makes_the_publisher_stage_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    publish = fleet.publisher("grpc")
    await publish.publish(fleet.trainer.export(0))
    client = type(fleet.replicas[0].client)
    real, is_first = client.activate, [True]

    async def too_late(self, policy: str, policy_version: int, **more: float) -> None:
        if is_first.pop() if is_first else False:
            await self.discard(policy, policy_version)
        await real(self, policy, policy_version, **more)

    monkeypatch.setattr(client, "activate", too_late)
    fleet.trainer.learn(1)
    await publish.publish(fleet.trainer.export(1))
    assert await fleet.serving() == [(1, ())] * 2
    await publish.close()


@pytest.mark.parametrize(
    "key", ["../outside", "/etc/passwd", "job/../../p", "job//p", ".hidden", "", "job/p\n"]
)
async def test_store_key_that_leaves_the_store_is_refused(fleet: Fleet, key: str):
    manifest = fleet.trainer.export(0).manifest
    client = fleet.replicas[0].client
    with pytest.raises(InvalidArgumentError, match="not a key"):
        await client.send_weights(manifest, pb.StoredWeights(key=key), 15.0)
    assert (await fleet.serving())[0] == (None, ())


async def test_store_that_holds_other_weights_than_announced_is_refused(fleet: Fleet):
    transport = fleet.transport("store")
    export = fleet.trainer.export(0)
    async with transport.session(export, [], timeout_s=5):
        pass
    (file,) = fleet.store.rglob("*.safetensors")
    key = str(file.relative_to(fleet.store))
    fleet.trainer.learn(1)
    other = fleet.trainer.export(1).manifest
    with pytest.raises(WeightsRejectedError, match="The store has other weights"):
        await fleet.replicas[0].client.send_weights(other, pb.StoredWeights(key=key), 5.0)
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(WeightsRejectedError, match="digest of tensor '") as caught:
        await fleet.replicas[0].client.send_weights(export.manifest, pb.StoredWeights(key=key), 5.0)
    assert (caught.value.pointer or "").startswith("/tensors/")
    assert (await fleet.serving())[0] == (None, ())


_TRAINER = """
import asyncio, sys
from pathlib import Path
from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.clients import rollout

manifest, path, how, *addresses = sys.argv[1:]
manifest = WeightsManifest.FromString(Path(manifest).read_bytes())

async def half():
    async for part in rollout._parts(manifest, Path(path)):
        yield part
        break
    print("ready", flush=True)
    await asyncio.sleep(600)

async def main():
    clients = [rollout.RolloutClient(address) for address in addresses]
    if how == "half sent":
        await clients[0]._stub.UpdateWeights(half(), timeout=600)
    for client in clients:
        await client.send_weights(manifest, Path(path))
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["staged", "half sent"])
async def test_trainer_killed_in_mid_push_leaves_the_old_version_and_nothing_else(
    fleet: Fleet, how: str, tmp_path: Path
):
    await (publish := fleet.publisher("grpc")).publish(fleet.trainer.export(0))
    fleet.trainer.learn(1)
    export = fleet.trainer.export(1)
    manifest = tmp_path / "manifest"
    manifest.write_bytes(export.manifest.SerializeToString())
    words = [str(manifest), str(export.path), how, *(r.address for r in fleet.replicas)]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _TRAINER, *words), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(60):
        assert await child.stdout.readline() == b"ready\n"
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    async with asyncio.timeout(30):
        while await fleet.serving() != [(0, ())] * 2 or _files(tmp_path):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    fleet.trainer.learn(2)
    await publish.publish(fleet.trainer.export(1))
    assert await fleet.serving() == [(1, ())] * 2
    await publish.close()


def _files(folder: Path) -> list[Path]:
    return [p for name in ("r0", "r1") for p in (folder / name).rglob("*") if p.is_file()]


async def test_store_when_a_trainer_died_then_its_successor_deletes_what_it_left(fleet: Fleet):
    foreign = fleet.store / "job" / "p" / "README.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("of others")
    for life in (range(3), range(2, 5)):
        publish = fleet.publisher("store")
        for version in life:
            fleet.trainer.learn(10 * len(life) + version + life.start)
            await publish.publish(fleet.trainer.export(version))
            await publish.forget_before("p", version)
        await publish.close()
    assert foreign.read_text() == "of others"
    left = sorted(p.name.split("-")[0] for p in fleet.store.rglob("*") if p.is_file())
    assert left == ["README.txt", "v00004", "v00004"]
