"""Adapters and requests that a real SGLang must never see, and pushes that did not arrive."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sglang_world import (
    LORA,
    lora_policies,
    push,
    request,
)

from benchmarks.random_model import save_random_model
from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.errors import (
    ConflictError,
    InvalidArgumentError,
    JobFailedError,
    PromptTooLongError,
    WeightsRejectedError,
)
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.policy import LoraSpec
from troupe_rollout.engines.sglang import SglangEngine, lora
from troupe_rollout.engines.sglang.client import SglangClient

Trainers = Callable[..., TinyTrainer]
pytestmark = pytest.mark.asyncio(loop_scope="session")


def _bad_adapters(new_trainer: Trainers, tmp_path: Path) -> dict[str, tuple[StagedWeights, str]]:
    good = new_trainer("bad")
    wide = new_trainer("bad", LoraSpec(rank=8, alpha=8)).staged(1)
    other = save_random_model(tmp_path / "other", hidden=192)
    foreign = new_trainer("bad", LORA, other).staged(1)
    few = new_trainer("bad", LoraSpec(rank=4, alpha=8, targets=["q_proj", "v_proj"])).staged(1)
    whole = replace(good.staged(1), kind="full", adapter_config_json="")
    return {
        "rank": (wide, "an adapter of rank 8"),
        "base": (foreign, "another base model"),
        "targets": (few, "is missing"),
        "kind": (whole, "full weights"),
    }


@pytest.mark.parametrize("what", ["rank", "base", "targets", "kind"])
async def test_adapter_that_is_not_the_policys_is_refused_and_the_old_version_serves(
    lora_engine: SglangEngine, new_trainer: Trainers, tmp_path: Path, what: str
):
    good = new_trainer("bad")
    await push(lora_engine, good, 0)
    weights, words = _bad_adapters(new_trainer, tmp_path)[what]
    loaded = await lora_engine._servers[0].client().adapters()
    with pytest.raises(WeightsRejectedError, match=words):
        await lora_engine.stage(weights)
    assert await lora_engine._servers[0].client().adapters() == loaded
    assert (await lora_engine.generate(request(0, "bad"))).policy_version == 0


async def test_version_that_goes_backwards_is_refused(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    own = new_trainer("bad")
    for version in (7, 8):
        own.learn(version)
        await push(lora_engine, own, version)
    with pytest.raises(ConflictError, match="never go back"):
        await lora_engine.stage(own.staged(6))
    assert (await lora_engine.generate(request(8, "bad"))).policy_version == 8


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt": [1, 68]}, "outside the vocabulary"),
        ({"prompt": []}, "at least 1"),
        ({"num_candidates": 0}, "at least 1"),
    ],
)
async def test_request_that_would_hurt_the_server_never_reaches_it(
    lora_engine: SglangEngine,
    new_trainer: Trainers,
    more: dict[str, Any],
    words: str,
):
    await push(lora_engine, new_trainer("q"), 2)
    with pytest.raises(InvalidArgumentError, match=words):
        await lora_engine.generate(request(2, "q", **more))
    assert await lora_engine.generate(request(2, "q"))


async def test_prompt_that_fills_the_context_never_reaches_the_server(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    await push(lora_engine, new_trainer("q"), 2)
    with pytest.raises(PromptTooLongError, match="Shorten the prompt"):
        await lora_engine.generate(request(2, "q", prompt=[1] * 256))


async def test_prompt_that_leaves_room_for_one_token_gets_one(
    lora_engine: SglangEngine, new_trainer: Trainers
):
    await push(lora_engine, new_trainer("q"), 2)
    full = request(2, "q", prompt=[5] * 255, num_candidates=2)
    result = await lora_engine.generate(full)
    assert [len(c.token_ids) for c in result.candidates] == [1, 1]
    assert {c.finish_reason for c in result.candidates} <= {"length", "stop"}
    ids = [5] * 256
    assert len(await lora_engine.score("q", 2, ids)) == 255
    with pytest.raises(InvalidArgumentError, match="Score fewer"):
        await lora_engine.score("q", 2, [*ids, 5])


async def test_publish_of_an_adapter_that_was_corrupted_on_the_way_fails_and_names_the_replica(
    lora_engine: SglangEngine,
    new_trainer: Trainers,
    tmp_path: Path,
    sglang_model: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    own = new_trainer("wire")
    async with sidecar(lora_engine, tmp_path / "in") as replica:
        publish = publisher(Members([replica]), lora_policies(sglang_model, "wire"))
        await publish.publish(own.export(0))
        real = lora.keep_adapter

        def keep_and_flip(weights: StagedWeights, folder: Path) -> str:
            copy = folder.parent / f"{folder.name}.copy"
            copy.write_bytes(flipped(weights.path.read_bytes()))
            try:
                return real(
                    StagedWeights("wire", 1, "lora", copy, weights.adapter_config_json), folder
                )
            finally:
                copy.unlink()

        monkeypatch.setattr(lora, "keep_adapter", keep_and_flip)
        own.learn(1)
        with pytest.raises(JobFailedError, match="Replica r0 does not take version 1 of policy"):
            await publish.publish(own.export(1))
        monkeypatch.undo()
        assert (await lora_engine.generate(request(0, "wire"))).policy_version == 0
        await publish.publish(own.export(1))
        assert (await lora_engine.generate(request(1, "wire"))).policy_version == 1
        await publish.close()


async def test_publish_of_an_adapter_that_never_reached_the_sampler_is_caught_by_the_canary(
    lora_engine: SglangEngine,
    new_trainer: Trainers,
    tmp_path: Path,
    sglang_model: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    own = new_trainer("wire")
    own.learn(7, size=0.3)
    async with sidecar(lora_engine, tmp_path / "in") as replica:
        publish = publisher(Members([replica]), lora_policies(sglang_model, "wire"))
        await publish.publish(own.export(2))
        real = SglangClient.generate

        async def base_only(self: SglangClient, body: dict[str, Any]) -> Any:
            return await real(self, {k: v for k, v in body.items() if k != "lora_path"})

        monkeypatch.setattr(SglangClient, "generate", base_only)
        own.learn(8, size=0.3)
        with pytest.raises(JobFailedError, match="log probabilities of the canary differ"):
            await publish.publish(own.export(3))
        monkeypatch.undo()
        states = {state.policy: state for state in lora_engine.policies()}
        assert states["wire"].active_version == 2
        assert (await lora_engine.generate(request(2, "wire"))).policy_version == 2
        await publish.close()


async def test_truncated_stream_leaves_nothing(
    lora_engine: SglangEngine,
    new_trainer: Trainers,
    tmp_path: Path,
    sglang_model: Path,
):
    own = new_trainer("wire")
    folder = tmp_path / "in"
    async with sidecar(lora_engine, folder) as replica:
        publish = publisher(Members([replica]), lora_policies(sglang_model, "wire"))
        await publish.publish(own.export(4))
        export = own.export(5)
        data = export.path.read_bytes()
        export.path.write_bytes(data[: len(data) // 2])
        with pytest.raises(WeightsRejectedError, match="bytes arrived"):
            await replica.client.update_weights(export.manifest, export.path)
        export.path.write_bytes(data)
        export.manifest.tensor_digest = "0" * 64
        with pytest.raises(WeightsRejectedError, match="digest"):
            await replica.client.update_weights(export.manifest, export.path)
        assert [path for path in folder.rglob("*") if path.is_file()] == []
        states = {state.policy: state for state in lora_engine.policies()}
        assert (states["wire"].active_version, states["wire"].staged_versions) == (4, ())
        names = await lora_engine._servers[0].client().adapters()
        assert [name for name in names if name.startswith("wire@5")] == []
        await publish.close()


def flipped(data: bytes) -> bytes:
    """One bit of the last tensor, which no check of shapes sees."""
    return data[:-3] + bytes([data[-3] ^ 0x40]) + data[-2:]
