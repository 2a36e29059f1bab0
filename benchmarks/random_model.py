"""A Qwen3 with random weights and a word-level tokenizer: for measuring and testing engines.

Owns a model that needs no hub and no training. It says nothing sensible.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ("<pad>", "<|im_start|>", "<|im_end|>", "<unk>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant{% endif %}"
)


def save_random_model(
    folder: Path,
    *,
    seed: int = 0,
    num_words: int = 60,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 256,
    sharpness: float = 3.0,
    tied: bool = True,
    intermediate: int = 0,
    head_dim: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
) -> Path:
    """Write a model folder; ``sharpness`` scales the weights, so that tokens differ.

    ``device``: where the weights are drawn, which takes minutes for billions of them on a CPU.
    """
    words = [*SPECIAL, "system", "user", "assistant", "tool", *[f"w{i}" for i in range(num_words)]]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=hidden,
        intermediate_size=intermediate or hidden * 8 // 3 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim or hidden // heads,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(sharpness)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
