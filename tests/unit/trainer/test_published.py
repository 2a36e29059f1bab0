"""What replicas are sent: adapters in the format that engines compute them in."""

from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_data import save_tiny_model
from transformers import AutoModelForCausalLM, Qwen3Config

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import PRESETS
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_trainer.checkpoint.export import export_model
from troupe_trainer.model.loading import with_adapter
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.published import published


def _adapted_qwen3_8b(rank: int) -> Any:
    """transformers' Qwen3-8B with an adapter on each linear layer, without numbers."""
    shape = PRESETS["Qwen/Qwen3-8B"].shape
    config = Qwen3Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
    )
    with torch.device("meta"):
        base: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        policy = PolicySpec(model="m", train=LoraSpec(rank=rank), dtype="bfloat16")
        return with_adapter("p", base, policy, seed=0)


@pytest.mark.parametrize(("dtype", "megabytes"), [(torch.bfloat16, 175), (torch.float32, 349)])
def test_adapter_of_qwen3_8b_when_its_rank_is_32_then_counts_so_many_megabytes(
    dtype: torch.dtype, megabytes: int
) -> None:
    module = _adapted_qwen3_8b(32)
    assert {p.dtype for p in module.parameters() if p.requires_grad} == {torch.float32}
    sent = dict(published(module, dtype))
    assert {tensor.dtype for tensor in sent.values()} == {dtype}
    assert len(sent) == 36 * 7 * 2
    assert round(sum(t.numel() * t.element_size() for t in sent.values()) / 1e6) == megabytes


def test_adapter_of_a_hub_model_when_it_is_sent_or_exported_then_the_hub_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # where peft would ask it warns, and that is an error
    policy = PolicySpec(model=str(save_tiny_model(tmp_path / "base")), train=LoraSpec(rank=2))
    model = PolicyModel("p", policy, seed=0, device="cpu")
    model.module.peft_config["default"].base_model_name_or_path = "some-org/some-model"
    assert dict(published(model.module, torch.float32)).keys() == model.weights().keys()
    assert export_model(model, policy, tmp_path / "out").keys() == {"adapter", "merged"}


def test_adapter_of_an_output_head_when_it_is_to_be_made_then_refused_by_field() -> None:
    policy = PolicySpec(model="m", train=LoraSpec(targets=["q_proj", "lm_head"]))
    with pytest.raises(InvalidArgumentError, match="'lm_head' gets no adapter") as refused:
        with_adapter("p", None, policy, seed=0)
    assert refused.value.pointer == "/policies/p/train/targets"
