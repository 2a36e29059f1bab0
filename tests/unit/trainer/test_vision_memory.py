"""The memory that is predicted of a vision tower is what transformers' towers take."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import job_spec
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from vision_data import KINDS, random_image, save_vision_model

from troupe.errors import InvalidArgumentError
from troupe.spec.fit import fit_batch
from troupe.spec.memory import GB, decoder_shape, predict, vision_tower
from troupe.spec.policy import PolicySpec
from troupe.spec.tower import KNOWN, KNOWN_DECODERS, tower_memory
from troupe_trainer.model.model import PolicyModel

BILLIONS = {
    "Qwen2.5-VL-3B": 3.75,
    "Qwen2.5-VL-7B": 8.29,
    "Qwen3-VL-4B": 4.44,
    "Qwen3-VL-8B": 8.77,
}
NUM_PATCHES = 16 * 16


def _meta_model(name: str) -> Any:
    """transformers' model of a known shape, without numbers."""
    tower, shape = KNOWN[name], KNOWN_DECODERS[name]
    is_3 = name.startswith("Qwen3")
    text: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "pad_token_id": 0,
    }
    vision: dict[str, Any] = {
        "hidden_size": tower.hidden,
        "depth": tower.depth,
        "num_heads": 16,
        "intermediate_size": tower.intermediate,
        "out_hidden_size": tower.out,
    }
    if is_3:
        text["head_dim"] = shape.head_dim
        vision["deepstack_visual_indexes"] = list(range(1, tower.num_mergers))
    kind: Any = Qwen3VLConfig if is_3 else Qwen2_5_VLConfig
    model: Any = Qwen3VLForConditionalGeneration if is_3 else Qwen2_5_VLForConditionalGeneration
    config = kind(text_config=text, vision_config=vision, tie_word_embeddings=shape.is_tied)
    with torch.device("meta"):
        return model(config)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_known_models_that_see_when_counted_then_have_their_parameters(
    name: str, tmp_path: Path
) -> None:
    model = _meta_model(name)
    total = sum(p.numel() for p in model.parameters())
    of_tower = sum(p.numel() for p in model.model.visual.parameters())

    assert total / 1e9 == pytest.approx(BILLIONS[name], abs=0.01)
    shape, tower = decoder_shape(f"Qwen/{name}-Instruct"), vision_tower(f"Qwen/{name}-Instruct")
    assert shape == KNOWN_DECODERS[name]
    assert tower is not None
    assert shape is not None
    assert tower == KNOWN[name]
    assert tower.num_parameters() == pytest.approx(of_tower, rel=0.002)
    assert shape.num_parameters() == total - of_tower
    model.config.save_pretrained(tmp_path)
    assert decoder_shape(str(tmp_path)) == shape
    assert vision_tower(str(tmp_path)) == tower


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_prediction_of_a_trained_tower_when_compared_with_what_it_keeps_then_is_close(
    kind: str, train: str, dtype: str, tmp_path: Path
) -> None:
    folder = save_vision_model(
        tmp_path, kind, tower={"depth": 3, "hidden_size": 128, "num_heads": 4}
    )
    kinds: dict[str, Any] = {"lora": {"kind": "lora", "rank": 4}, "full": {"kind": "full"}}
    policy = PolicySpec.model_validate(
        {"model": str(folder), "train": kinds[train] | {"vision": True}, "dtype": dtype}
    )
    tower = vision_tower(str(folder))
    assert tower is not None

    kept = _kept(PolicyModel("p", policy, seed=0, device="cpu"), kind)

    predicted = tower_memory(tower, policy, patches=NUM_PATCHES, checkpoint_activations=False)
    print(f"\npredicted {predicted.activations:.0f}, kept {kept}")
    assert predicted.activations == pytest.approx(kept, rel=0.1)


def _kept(model: Any, kind: str) -> int:
    """Bytes that a pass of the tower over one image keeps for the backward pass."""
    weights = {p.untyped_storage()._cdata for p in model.module.parameters()}
    storages: dict[int, Any] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage: Any = tensor.untyped_storage()
        if storage._cdata not in weights:
            storages[storage._cdata] = storage
        return tensor

    image = random_image(random.Random(0), kind, 8, 8)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t), model.autocast:
        model._vision._computed(model._causal, image)
    return sum(storage.nbytes() for storage in storages.values())


def test_predict_when_the_tower_is_frozen_then_it_is_held_and_its_patches_take_no_room() -> None:
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    shape, tower = KNOWN_DECODERS["Qwen2.5-VL-7B"], KNOWN["Qwen2.5-VL-7B"]
    lora: Any = {"kind": "lora", "rank": 16}

    def peak(vision: bool, sees: bool = True, patches: int = 0) -> float:
        policy = PolicySpec.model_validate(
            {"model": name, "train": lora | {"vision": vision}, "dtype": "bfloat16"}
        )
        seen = tower_memory(
            tower if sees else None, policy, patches=patches, checkpoint_activations=False
        )
        return predict(shape, policy, tokens=8192, checkpoint_activations=False, tower=seen).peak

    blind, frozen = peak(False, sees=False), peak(False)
    trained = peak(True, patches=8192)
    assert 2 * tower.num_parameters() < frozen - blind < 3 * tower.num_parameters()
    assert trained - frozen > 15 * GB, "32 layers keep 8,192 patches"


@pytest.mark.parametrize("vision", [False, True])
def test_fit_when_the_model_sees_then_counts_it_and_refuses_a_gpu_that_is_too_small(
    vision: bool, tmp_path: Path
) -> None:
    model = "Qwen/Qwen2.5-VL-7B-Instruct"
    train = {"kind": "lora", "rank": 16, "vision": vision}
    policies = {"shared": {"model": model, "train": train, "dtype": "bfloat16"}}
    spec = job_spec(tmp_path, policies=policies)
    fit = fit_batch(spec, 80 * GB)
    assert fit.peak_bytes is not None
    assert fit.peak_bytes > 17 * GB, "weights of 8.29 billion in bfloat16"
    with pytest.raises(InvalidArgumentError, match="GB on its GPU"):
        fit_batch(spec, 16 * GB)


def test_shapes_when_the_config_is_of_transformers_4_then_are_read_too(tmp_path: Path) -> None:
    flat = {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(flat), encoding="utf-8")
    assert decoder_shape(str(tmp_path)) == KNOWN_DECODERS["Qwen2.5-VL-7B"]
    assert vision_tower(str(tmp_path)) == KNOWN["Qwen2.5-VL-7B"]
