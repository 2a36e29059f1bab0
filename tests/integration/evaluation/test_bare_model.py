"""A model without an adapter is served as it is, in either form that engines take."""

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file

from benchmarks.random_model import save_random_model
from benchmarks.random_vision_model import KINDS, save_vision_model, save_vision_tokenizer
from troupe.errors import WeightsRejectedError
from troupe.evaluation.bare import stage_bare, write_zeros, zero_shapes
from troupe.runtime.engines.engine import StagedWeights
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_rollout.engines.cpu import CpuEngine
from troupe_rollout.engines.sglang.files import check_adapter
from troupe_rollout.engines.sglang.model import read_base

TOKENS = list(range(4, 24))


class WantsEveryLayer(CpuEngine):
    """Takes no LoRA that leaves a layer out, as an engine with fused layers may."""

    async def stage(self, weights: StagedWeights) -> str:
        if not load_file(weights.path):
            raise WeightsRejectedError("tensor 'model.layers.0.q_proj.lora_A' is missing")
        return await super().stage(weights)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("random") / "model")


async def logprobs(engine: CpuEngine, model: Path, folder: Path) -> list[float]:
    await engine.start({"p": PolicySpec(model=str(model))})
    try:
        await stage_bare(engine, "p", str(model), folder)
        await engine.activate("p", 0)
        return await engine.score("p", 0, TOKENS)
    finally:
        await engine.stop()


async def test_bare_model_when_the_engine_wants_matrices_then_zeros_change_nothing(
    model: Path, tmp_path: Path
) -> None:
    plain = await logprobs(CpuEngine(), model, tmp_path)
    assert load_file(tmp_path / "p.safetensors") == {}
    zeros = await logprobs(WantsEveryLayer(), model, tmp_path)
    assert len(load_file(tmp_path / "p.safetensors")) == 2 * 2 * 7
    assert zeros == plain
    assert len(set(plain)) > 1


def test_zero_adapter_when_written_then_has_both_sides_of_every_layer(
    model: Path, tmp_path: Path
) -> None:
    shapes = zero_shapes(model)
    own = load_file(model / "model.safetensors")
    write_zeros(tmp_path / "z.safetensors", shapes)
    found = load_file(tmp_path / "z.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == shapes
    assert not any(tensor.any() for tensor in found.values())
    for name, tensor in own.items():
        if name.endswith("_proj.weight"):
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            assert shapes[f"{layer}.lora_A.weight"] == (1, tensor.shape[1])
            assert shapes[f"{layer}.lora_B.weight"] == (tensor.shape[0], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_adapter_when_the_model_takes_images_then_is_one_that_sglang_takes(
    kind: str, tmp_path: Path
) -> None:
    model = save_vision_tokenizer(save_vision_model(tmp_path / "model", kind))
    path = tmp_path / "z.safetensors"
    write_zeros(path, zero_shapes(model))
    layers = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}
    staged = StagedWeights("p", 0, "lora", path, json.dumps(layers))
    base = read_base(PolicySpec(model=str(model)))
    check_adapter(base, staged, LoraSpec(rank=1, alpha=1))
    assert len(load_file(path)) == 2 * 2 * 7


async def test_bare_model_when_it_is_a_hub_id_then_the_fetched_files_are_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of the hub's client, as a download leaves it; nothing is downloaded here."""
    commit, repo = "a" * 40, tmp_path / "hub" / "models--org--base"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    shutil.copytree(model, repo / "snapshots" / commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    engine = WantsEveryLayer()
    await engine.start({"p": PolicySpec(model=str(model))})
    try:
        await stage_bare(engine, "p", "org/base", tmp_path)
        await engine.activate("p", 0)
        assert len(load_file(tmp_path / "p.safetensors")) == 2 * 2 * 7
    finally:
        await engine.stop()


async def test_bare_model_when_its_files_are_not_here_then_the_refusal_stands(
    model: Path, tmp_path: Path
) -> None:
    engine = WantsEveryLayer()
    await engine.start({"p": PolicySpec(model=str(model))})
    try:
        with pytest.raises(WeightsRejectedError):
            await stage_bare(engine, "p", "some/hub-id", tmp_path)
    finally:
        await engine.stop()
