"""First embeddings of a tiny model: a word begins as the sum of its letters.

So ``b3`` and ``b4`` begin near each other, and a grid of cell names has rows and columns before
the first step: the warm start then needs a fraction of the demonstrations.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import PreTrainedTokenizerFast


def embed_words(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    words: Sequence[str],
    std: float,
) -> None:
    """Draw every token's embedding from N(0, std^2), then build two-letter words from letters."""
    weights_VD = cast("torch.Tensor", model.get_input_embeddings().weight)
    ids = tokenizer.get_vocab()
    with torch.no_grad():
        weights_VD.normal_(std=std)
        for word in words:
            if len(word) > 1 and any(letter.isdigit() for letter in word):
                parts = [ids[letter] for letter in word]
                for token in tokenizer.encode(f" {word}"):
                    weights_VD[token] = weights_VD[parts].sum(0) / len(parts) ** 0.5
