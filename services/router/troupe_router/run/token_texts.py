"""Token ids of recorded completions as pieces of text, for shading by probability.

Reads tokenizer.json of a policy's model folder where the router has it. Never loads a model.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from troupe.clients.rest.models.episode_tree import TokensDocument

_MOST_PARTS = 4
"""Tokens of one character: UTF-8 has 4 bytes at most. More are no character, and not waited for."""


def token_texts(recorded: Mapping[str, Any] | None, model: str) -> TokensDocument | None:
    """``recorded`` ids as texts; None without ids or without a tokenizer."""
    tokenizer = _tokenizer(str(Path(model) / "tokenizer.json")) if recorded else None
    if recorded is None or tokenizer is None:
        return None
    return TokensDocument(texts=pieces(tokenizer, recorded["ids"]), logprobs=recorded["logprobs"])


def pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    """One piece a token; together they are the decoded text, special tokens by name.

    A token that is part of a character gives its text with the last of them.
    """
    texts: list[str] = []
    begin = shown = 0
    for end in range(1, len(ids) + 1):
        # Decode from the previous piece on, so that start-of-text handling affects both alike.
        before = tokenizer.decode(ids[begin:shown], skip_special_tokens=False)
        text = tokenizer.decode(ids[begin:end], skip_special_tokens=False)
        is_part = text.endswith("\ufffd") and end < len(ids) and end - shown < _MOST_PARTS
        if is_part:
            texts.append("")
            continue
        texts.append(text[len(before) :])
        begin, shown = shown, end
    return texts


@lru_cache(maxsize=8)
def _tokenizer(path: str) -> Any:
    if not Path(path).is_file():
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    try:
        return Tokenizer.from_file(path)
    except Exception:
        return None
