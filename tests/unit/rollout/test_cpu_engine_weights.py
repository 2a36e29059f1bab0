"""LoRA and full weights in the cpu engine, against peft and transformers themselves."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from troupe.candidates import GenerateRequest
from troupe.errors import VersionNotLoadedError, WeightsRejectedError
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.weights import file_tensors, tensor_digest
from troupe.spec.job import SamplingSpec
from troupe_rollout.engines.cpu import CpuEngine

# peft 0.21 reads a name that transformers 5.23 calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")

TOKENS = [5, 9, 33, 12, 40, 7, 21, 60, 4]


def save_adapter(model_dir: Path, folder: Path, **options: Any) -> tuple[Path, str, list[float]]:
    """A random adapter of peft's own: its file, its config and its logprobs of TOKENS."""
    base = AutoModelForCausalLM.from_pretrained(model_dir)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, **options
    )
    torch.manual_seed(1)
    model = get_peft_model(base, config).eval()
    model.save_pretrained(folder)
    ids = torch.tensor([TOKENS])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0, :-1], -1)
    expected = logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist()
    config_json = (folder / "adapter_config.json").read_text()
    return folder / "adapter_model.safetensors", config_json, expected


@pytest.mark.parametrize("use_rslora", [False, True])
async def test_lora_scores_as_peft_does(
    engine: CpuEngine, model_dir: Path, tmp_path: Path, use_rslora: bool
):
    path, config, expected = save_adapter(model_dir, tmp_path, use_rslora=use_rslora)
    before = await engine.score("shared", 0, TOKENS)
    digest = await engine.stage(StagedWeights("shared", 1, "lora", path, config))
    assert digest == tensor_digest(file_tensors(path))
    staged = await engine.score("shared", 1, TOKENS)
    assert staged == pytest.approx(expected, abs=2e-4)
    assert before != pytest.approx(expected, abs=1e-2), "the adapter must change something"
    assert await engine.score("shared", 0, TOKENS) == before, "the base must not change"


async def test_full_weights_replace_all_of_them(
    engine: CpuEngine, base_weights: Path, tmp_path: Path
):
    changed = {name: tensor * 0.5 for name, tensor in load_file(base_weights).items()}
    save_file(changed, tmp_path / "w")
    await engine.stage(StagedWeights("shared", 1, "full", tmp_path / "w", ""))
    (tmp_path / "w").unlink()
    assert await engine.score("shared", 1, TOKENS) != await engine.score("shared", 0, TOKENS)
    save_file({name: tensor * 2 for name, tensor in changed.items()}, tmp_path / "w")
    await engine.stage(StagedWeights("shared", 2, "full", tmp_path / "w", ""))
    assert await engine.score("shared", 2, TOKENS) == await engine.score("shared", 0, TOKENS)


async def test_activation_switches_versions_while_requests_in_flight_finish_on_theirs(
    engine: CpuEngine, model_dir: Path, tmp_path: Path
):
    path, config, _ = save_adapter(model_dir, tmp_path)

    def ask(version: int, tokens: int = 40) -> GenerateRequest:
        sampling = SamplingSpec(max_new_tokens=tokens)
        return GenerateRequest("shared", version, TOKENS, 8, sampling, 3)

    expected_old = await engine.generate(ask(0))
    in_flight = [asyncio.ensure_future(engine.generate(ask(0))) for _ in range(12)]
    await engine.stage(StagedWeights("shared", 1, "lora", path, config))
    with pytest.raises(VersionNotLoadedError):
        await engine.generate(ask(1))
    queued = [asyncio.ensure_future(engine.generate(ask(0))) for _ in range(4)]
    await asyncio.wait(queued, timeout=0)
    await engine.activate("shared", 1)
    await engine.discard("shared", 0)
    new = await engine.generate(ask(1))
    old = await asyncio.gather(*in_flight, *queued)
    assert all(result.candidates == expected_old.candidates for result in old)
    assert {result.policy_version for result in old} == {0}
    assert new.policy_version == 1
    assert new.candidates != expected_old.candidates
    with pytest.raises(VersionNotLoadedError):
        await engine.generate(ask(0))


async def test_stage_of_a_held_version_again_changes_nothing(engine: CpuEngine, base_weights: Path):
    await engine.stage(StagedWeights("shared", 0, "full", base_weights, ""))
    (state,) = engine.policies()
    assert state.loaded_versions == (0,) and state.staged_versions == ()


CONFIG = json.dumps({"r": 2, "lora_alpha": 4})
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("tensors", "config", "names"),
    [
        ({f"{LAYER}.bias": torch.ones(64)}, CONFIG, "q_proj.bias"),
        ({f"{LAYER}.lora_A.weight": torch.ones(2, 64)}, CONFIG, "q_proj.lora_A"),
        (
            {
                f"{LAYER}.lora_A.weight": torch.ones(2, 32),
                f"{LAYER}.lora_B.weight": torch.ones(64, 2),
            },
            CONFIG,
            "q_proj.lora_B",
        ),
        (
            {
                "base_model.model.model.layers.9.mlp.up_proj.lora_A.weight": torch.ones(2, 64),
                "base_model.model.model.layers.9.mlp.up_proj.lora_B.weight": torch.ones(64, 2),
            },
            CONFIG,
            "layers.9.mlp.up_proj",
        ),
        ({f"{LAYER}.lora_A.weight": torch.ones(2, 64)}, '{"r": 2}', "LoRA configuration"),
        (
            {f"{LAYER}.lora_A.weight": torch.ones(2, 64)},
            json.dumps({"r": 2, "lora_alpha": 4, "use_dora": True}),
            "use_dora",
        ),
    ],
)
async def test_stage_of_a_wrong_adapter_names_the_tensor(
    engine: CpuEngine, tmp_path: Path, tensors: dict[str, torch.Tensor], config: str, names: str
):
    save_file(tensors, tmp_path / "w")
    with pytest.raises(WeightsRejectedError, match=names):
        await engine.stage(StagedWeights("shared", 1, "lora", tmp_path / "w", config))
    assert engine.policies()[0].staged_versions == ()


@pytest.mark.parametrize("damage", ["missing", "unknown", "shape"])
async def test_stage_of_wrong_full_weights_names_the_tensor(
    engine: CpuEngine, base_weights: Path, tmp_path: Path, damage: str
):
    tensors = load_file(base_weights)
    name = "model.layers.1.mlp.down_proj.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = tensors[name][:-1].clone()
    else:
        name = "model.layers.7.extra"
        tensors[name] = torch.ones(1)
    save_file(tensors, tmp_path / "w")
    with pytest.raises(WeightsRejectedError, match=name):
        await engine.stage(StagedWeights("shared", 1, "full", tmp_path / "w", ""))


async def test_stage_of_something_that_is_not_safetensors_is_rejected(
    engine: CpuEngine, tmp_path: Path
):
    (tmp_path / "w").write_bytes(b"\x80\x04pickle")
    with pytest.raises(WeightsRejectedError, match="safetensors"):
        await engine.stage(StagedWeights("shared", 1, "full", tmp_path / "w", ""))
