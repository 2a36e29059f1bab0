"""A model without numbers, filled from its files, is the model that transformers loads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from trainer_data import TINY_SIZES, save_tiny_model
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
)

from troupe.errors import InvalidArgumentError
from troupe.runtime.run_folder import part_names
from troupe.spec.policy import PolicySpec
from troupe_trainer.model.base_digest import base_digest
from troupe_trainer.model.kernels import PLAIN
from troupe_trainer.model.loading import Unfilled, empty_causal, load_causal
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.stored import StoredTensors, write_part
from troupe_trainer.model.tree_attention import use_tree

LLAMA_3: dict[str, Any] = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip


def _model(kind: str) -> Any:
    torch.manual_seed(1)
    if kind == "llama":
        config = LlamaConfig(**TINY_SIZES, rope_parameters=LLAMA_3, tie_word_embeddings=False)
        return LlamaForCausalLM(config)
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**TINY_SIZES, sliding_window=None))
    return Qwen2ForCausalLM(Qwen2Config(**TINY_SIZES, tie_word_embeddings=True))


def _filled(unfilled: Unfilled) -> Any:
    for module, attribute, name in unfilled.places():
        empty = getattr(module, attribute)
        if empty.is_meta:
            filled = nn.Parameter(unfilled.stored[name].to(empty.dtype))
            for owner in unfilled.causal.modules():
                for other, parameter in owner.named_parameters(recurse=False):
                    if parameter is empty:
                        setattr(owner, other, filled)
    return unfilled.causal


@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral"])
@pytest.mark.parametrize("saved", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("train", "dtype"), [("full", "bfloat16"), ("lora", "bfloat16"), ("lora", "float32")]
)
def test_empty_model_when_filled_by_name_then_equals_the_one_that_transformers_loads(
    kind: str, saved: torch.dtype, train: str, dtype: str, tmp_path: Path
) -> None:
    _model(kind).to(saved).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    spec = PolicySpec.model_validate(
        {"model": str(tmp_path), "dtype": dtype, "train": {"kind": train}}
    )
    want = load_causal("p", spec, torch.device("cpu"), PLAIN)
    unfilled = empty_causal("p", spec, PLAIN)
    assert unfilled is not None
    assert all(parameter.is_meta for parameter in unfilled.causal.parameters())
    digest = base_digest(unfilled.causal, spec.model, unfilled.stored)
    assert digest == base_digest(want, spec.model)
    assert use_tree(unfilled.causal, "p") is use_tree(want, "p") is True
    got = _filled(unfilled)
    for kind_of in ("named_parameters", "named_buffers"):
        mine, theirs = dict(getattr(got, kind_of)()), dict(getattr(want, kind_of)())
        assert mine.keys() == theirs.keys() and theirs
        for name, tensor in theirs.items():
            assert mine[name].dtype == tensor.dtype, name
            assert torch.equal(mine[name], tensor), name
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        assert torch.equal(got(tokens).logits, want(tokens).logits)


def test_empty_model_when_the_files_use_other_names_then_transformers_loads_it(
    tmp_path: Path,
) -> None:
    folder = save_tiny_model(tmp_path / "m")
    spec = PolicySpec(model=str(folder))
    assert empty_causal("p", spec, PLAIN) is not None
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    save_file(bare, folder / "model.safetensors", {"format": "pt"})
    assert empty_causal("p", spec, PLAIN) is None
    assert PolicyModel("p", spec, seed=0, device="cpu", is_spread=True).score([1, 2])


def test_stored_tensors_when_in_parts_then_rows_and_samples_are_those_of_the_whole(
    tmp_path: Path,
) -> None:
    whole = {
        "m": torch.arange(35.0).reshape(7, 5).to(torch.bfloat16),
        "v": torch.arange(7),
        "s": torch.tensor(3.0),
    }
    names = part_names("p", 3)
    for rank, name in enumerate(names):
        rows = {n: t[rank * 3 : rank * 3 + 3].clone() for n, t in whole.items() if t.dim()}
        write_part(rows if rank else rows | {"s": whole["s"]}, tmp_path / name)
    stored = StoredTensors([tmp_path / name for name in names])
    assert set(stored) == set(whole)
    for name, tensor in whole.items():
        assert stored.shape(name) == tuple(tensor.shape)
        assert torch.equal(stored[name], tensor)
        assert stored[name].dtype == tensor.dtype
    for first, last in [(0, 2), (2, 7), (5, 5), (3, 4), (6, 7)]:
        assert torch.equal(stored.rows("m", first, last), whole["m"][first:last])
    write_part(whole, tmp_path / "one.safetensors")
    one = StoredTensors([tmp_path / "one.safetensors"])
    assert torch.equal(one.sample("m", 6), whole["m"].flatten()[::6])
    with pytest.raises(OSError, match=r"lack rows of 'm'"):
        stored.rows("m", 5, 8)


def test_empty_model_when_tied_tensors_differ_in_the_files_then_is_left_to_transformers(
    tmp_path: Path,
) -> None:
    model = _model("qwen2")
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    head = tensors["model.embed_tokens.weight"]
    for copy, is_filled in ((head.clone(), True), (head + 1.0, False)):
        save_file(tensors | {"lm_head.weight": copy}, tmp_path / "model.safetensors")
        spec = PolicySpec.model_validate({"model": str(tmp_path), "train": {"kind": "full"}})
        assert (empty_causal("p", spec, PLAIN) is not None) == is_filled


def test_model_with_experts_when_a_trainer_is_to_load_it_then_is_refused_by_name(
    tmp_path: Path,
) -> None:
    Qwen3MoeConfig(num_experts=4).save_pretrained(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"\(qwen3_moe\) has 4 experts"):
        PolicyModel("p", PolicySpec(model=str(tmp_path)), seed=0, device="cpu")
