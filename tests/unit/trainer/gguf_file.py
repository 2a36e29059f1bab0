"""Writes a GGUF file of a tiny Llama with byte-level BPE and ChatML, as llama.cpp does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"))
HIDDEN, HEADS, KV_HEADS, LAYERS, INNER, CONTEXT = 64, 4, 2, 2, 96, 128


def vocabulary() -> list[str]:
    """Special tokens, all bytes, and what ``MERGES`` joins."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIAL, *alphabet, *(first + second for first, second in MERGES)]


def tensors(seed: int = 0) -> dict[str, Any]:
    """Random weights under GGUF's names; float32, shapes (out, in)."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Any:
        return rng.normal(0.0, 0.1, (rows, columns)).astype(np.float32)

    size = HIDDEN // HEADS
    named = {"token_embd.weight": matrix(len(vocabulary()), HIDDEN)}
    for layer in range(LAYERS):
        shapes = {
            "attn_q": (HEADS * size, HIDDEN),
            "attn_k": (KV_HEADS * size, HIDDEN),
            "attn_v": (KV_HEADS * size, HIDDEN),
            "attn_output": (HIDDEN, HEADS * size),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }
        named |= {f"blk.{layer}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for norm in ("attn_norm", "ffn_norm"):
            named[f"blk.{layer}.{norm}.weight"] = np.ones(HIDDEN, np.float32)
    return named | {"output_norm.weight": np.ones(HIDDEN, np.float32)}


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    quantized: Sequence[str] = (),
    chat_template: str = CHAT_TEMPLATE,
) -> Path:
    """The file; tensors whose name contains one of ``quantized`` are stored as Q8_0."""
    writer = GGUFWriter(path, architecture)
    writer.add_name("Tiny of this test")
    writer.add_license("apache-2.0")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    words = vocabulary()
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(words)
    kinds = [TokenType.CONTROL if word in SPECIAL else TokenType.NORMAL for word in words]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    if chat_template:
        writer.add_chat_template(chat_template)
    for name, tensor in tensors().items():
        if any(part in name for part in quantized):
            packed = quants.quantize(tensor, GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
