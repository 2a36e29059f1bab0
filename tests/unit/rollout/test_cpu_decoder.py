"""The decoding pass against transformers' own, for every architecture that it knows."""

from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.cache_utils import DynamicCache

from troupe_rollout.engines.cpu.decoder import Decoder
from troupe_rollout.engines.cpu.pool import KvPool

SHAPE: dict[str, Any] = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
LENGTHS = (7, 1, 12, 20)


def _model(kind: str) -> Any:
    torch.manual_seed(3)
    models: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
        "llama": (
            LlamaForCausalLM,
            LlamaConfig,
            {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"},
        ),
        "llama, one key for all heads": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1}),
    }
    architecture, config, own = models[kind]
    model = architecture(config(**SHAPE | own)).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape))  # norms and biases that matter
    return model


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "llama, one key for all heads"])
@torch.inference_mode()
def test_decoder_over_several_tokens_gives_the_logits_of_the_whole_sequence(kind: str):
    model = _model(kind)
    assert Decoder.knows(model)
    rows, columns = len(LENGTHS), 32
    sequences = [torch.randint(0, 90, (length + 3,)) for length in LENGTHS]
    pool = KvPool()
    for row, (length, sequence) in enumerate(zip(LENGTHS, sequences, strict=True)):
        cache = DynamicCache()
        model(input_ids=sequence[None, :length], past_key_values=cache, use_cache=True)
        pool.reserve(rows, columns, cache)
        pool.write(row, 1, cache, 0, length)
    decoder, index = Decoder(model), torch.arange(rows)
    for added in range(3):
        position = torch.tensor(LENGTHS) + added
        token = torch.stack([s[p] for s, p in zip(sequences, position.tolist(), strict=True)])
        is_hidden = torch.arange(columns)[None] > position[:, None]
        mask = torch.zeros(rows, columns).masked_fill_(is_hidden, -torch.inf)[:, None, None]
        logits_RV = decoder(token, position, mask, pool.bind(index, position, columns))
        for row, sequence in enumerate(sequences):
            whole = model(input_ids=sequence[None, : int(position[row]) + 1]).logits[0, -1]
            torch.testing.assert_close(logits_RV[row], whole, rtol=1e-4, atol=1e-5)


def test_decoder_leaves_other_models_and_precisions_to_transformers():
    assert not Decoder.knows(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2)))
    assert not Decoder.knows(_model("qwen2").bfloat16())
