"""Full-weight versions in a real SGLang: one in the server, the other on disk, none half-loaded."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sglang_world import CANARY, PROMPT, engine_settings, full_policies, request, until, worst

from benchmarks.rollout_fleet import Members, TinyTrainer, publisher, sidecar
from troupe.errors import (
    ConflictError,
    JobFailedError,
    TroupeError,
    VersionNotLoadedError,
    WeightsRejectedError,
)
from troupe_rollout.engines.sglang import SglangEngine
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_rollout.engines.sglang.full import FullVersions

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    sglang_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SglangEngine]:
    """One server for this file, with version 0 active; the tests go on from one another."""
    found = SglangEngine(engine_settings(tmp_path_factory.mktemp("work")))
    await found.start(full_policies(sglang_model))
    yield found
    await found.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trainer(
    engine: SglangEngine, sglang_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> TinyTrainer:
    spec = full_policies(sglang_model)["p"]
    found = TinyTrainer("p", spec, tmp_path_factory.mktemp("out"))
    await engine.stage(found.staged(0))
    await engine.activate("p", 0)
    return found


def active(engine: SglangEngine) -> int:
    version = engine.policies()[0].active_version
    assert version is not None
    return version


def versions_of(engine: SglangEngine) -> FullVersions:
    found = engine._served["p"].versions
    assert isinstance(found, FullVersions)
    return found


async def test_push_arrives_and_answers_with_the_trainers_numbers(
    engine: SglangEngine, trainer: TinyTrainer
):
    version = active(engine) + 1
    before = await engine.score("p", version - 1, CANARY)
    trainer.learn(version, size=0.02)
    digest = await engine.stage(trainer.staged(version))
    assert digest == trainer.export(version).manifest.tensor_digest
    await engine.activate("p", version)
    scores = await engine.score("p", version, CANARY)
    assert worst(scores, trainer.model.score(CANARY)) < 1e-4
    assert worst(scores, before) > 0.01
    result = await engine.generate(request(version, sampling={"max_new_tokens": 24}))
    for candidate in result.candidates:
        theirs = trainer.logprobs(PROMPT, candidate.token_ids, 1.0).tolist()
        assert worst(theirs, candidate.logprobs) < 1e-3
    with pytest.raises(VersionNotLoadedError):
        await engine.generate(request(version - 1))


async def test_staged_version_is_scored_while_the_active_one_goes_on_answering(
    engine: SglangEngine, trainer: TinyTrainer
):
    old = active(engine)
    old_scores = trainer.model.score(CANARY)
    trainer.learn(77, size=0.02)
    await engine.stage(trainer.staged(old + 1))
    assert worst(await engine.score("p", old + 1, CANARY), trainer.model.score(CANARY)) < 1e-4
    assert (await engine.generate(request(old))).policy_version == old
    assert worst(await engine.score("p", old, CANARY), old_scores) < 1e-4
    await engine.discard("p", old + 1)
    trainer.learn(77, size=-0.02)
    assert worst(await engine.score("p", old, CANARY), old_scores) < 1e-4
    with pytest.raises(VersionNotLoadedError):
        await engine.activate("p", old + 1)


async def test_requests_of_the_old_version_finish_on_it_before_the_new_one_is_loaded(
    engine: SglangEngine, trainer: TinyTrainer
):
    old = active(engine)
    long = request(old, sampling={"max_new_tokens": 200}, num_candidates=8)
    running = asyncio.ensure_future(engine.generate(long))
    await until(lambda: versions_of(engine)._num_users > 0, 10, "a request in flight")
    trainer.learn(5, size=0.02)
    await engine.stage(trainer.staged(old + 1))
    await engine.activate("p", old + 1)
    assert running.done(), "the weights were replaced under a request"
    trainer.learn(5, size=-0.02)
    for candidate in (await running).candidates:
        theirs = trainer.logprobs(PROMPT, candidate.token_ids, 1.0).tolist()
        assert worst(theirs, candidate.logprobs) < 1e-3
    trainer.learn(5, size=0.02)


async def test_prefix_of_an_old_version_is_never_served_to_a_new_one(
    engine: SglangEngine, trainer: TinyTrainer
):
    prompt = [(5 * i + 3) % 68 for i in range(120)]
    for _ in range(2):
        version = active(engine) + 1
        trainer.learn(version, size=0.02)
        await engine.stage(trainer.staged(version))
        await engine.activate("p", version)
        for _ in range(2):  # the second time from the cache
            sampled = await engine.generate(request(version, prompt=prompt))
            for candidate in sampled.candidates:
                theirs = trainer.logprobs(prompt, candidate.token_ids, 1.0).tolist()
                assert worst(theirs, candidate.logprobs) < 1e-3


async def test_load_that_fails_leaves_the_old_version_serving(
    engine: SglangEngine, trainer: TinyTrainer
):
    old = active(engine)
    scores = trainer.model.score(CANARY)
    trainer.learn(9, size=0.02)
    await engine.stage(trainer.staged(old + 1))
    kept = engine._work.path / versions_of(engine)._table.scoring(old + 1).name
    file = kept / "model.safetensors"
    data = file.read_bytes()
    file.unlink()  # a link to what the trainer wrote
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(TroupeError):
        await engine.activate("p", old + 1)
    await until(engine.is_ready, 200, "the engine is back")
    assert active(engine) == old
    assert worst(await engine.score("p", old, CANARY), scores) < 1e-4
    await engine.discard("p", old + 1)
    trainer.learn(9, size=-0.02)


async def test_publish_whose_load_never_reached_the_sampler_is_caught(
    engine: SglangEngine,
    trainer: TinyTrainer,
    tmp_path: Path,
    sglang_model: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    old = active(engine)
    async with sidecar(engine, tmp_path) as replica:
        publish = publisher(Members([replica]), full_policies(sglang_model))
        monkeypatch.setattr(SglangClient, "load_weights", _load_nothing)
        trainer.learn(13, size=0.02)
        with pytest.raises(JobFailedError, match=r"Replica r0 .* the load did not arrive"):
            await publish.publish(trainer.export(old + 1))
        monkeypatch.undo()
        assert (await engine.generate(request(old))).policy_version == old
        await publish.publish(trainer.export(old + 1))
        assert (await engine.generate(request(old + 1))).policy_version == old + 1
        await publish.close()


async def _load_nothing(self: SglangClient, folder: Path, tag: str) -> None:
    """An update that says that it worked."""


@pytest.mark.parametrize("what", ["missing", "unknown", "shape", "kind", "backwards"])
async def test_weights_that_are_not_the_models_are_refused(
    engine: SglangEngine, trainer: TinyTrainer, tmp_path: Path, what: str
):
    from dataclasses import replace

    from safetensors.torch import load_file, save_file

    old = active(engine)
    weights = trainer.staged(old + 1)
    tensors: dict[str, Any] = load_file(weights.path)
    if what == "missing":
        del tensors["model.norm.weight"]
    if what == "unknown":
        tensors["model.extra.weight"] = tensors["model.norm.weight"].clone()
    if what == "shape":
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    path = tmp_path / "weights.safetensors"
    save_file(tensors, path)
    changed = replace(weights, path=path)
    if what == "kind":
        changed = replace(weights, kind="lora")
    if what == "backwards":
        changed = replace(weights, policy_version=old - 2)
    with pytest.raises(ConflictError if what == "backwards" else WeightsRejectedError):
        await engine.stage(changed)
    assert (await engine.generate(request(old))).policy_version == old
