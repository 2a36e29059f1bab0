"""Token ids of recorded completions as pieces of text, for shading by probability.

Reads tokenizer.json of a policy's model folder where the router has it. Never loads a model.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from troupe.spec import JobSpec


def with_texts(turns: list[dict[str, Any]], spec: JobSpec) -> list[dict[str, Any]]:
    """``turns`` with texts in the place of token ids; null where they cannot be known."""
    for turn in turns:
        for group in turn["groups"]:
            model = spec.policies[group["policy"]].model
            for candidate in group["candidates"]:
                recorded = candidate["tokens"]
                candidate["tokens"] = _texts(recorded, model) if recorded else None
    return turns


def _texts(recorded: dict[str, Any], model: str) -> dict[str, Any] | None:
    tokenizer = _tokenizer(str(Path(model) / "tokenizer.json"))
    if tokenizer is None:
        return None
    return {"texts": pieces(tokenizer, recorded["ids"]), "logprobs": recorded["logprobs"]}


def pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    """One piece a token; together they are the decoded text, special tokens by name.

    A token that is part of a character gives its text with the last of them.
    """
    texts: list[str] = []
    shown = ""
    for end in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:end], skip_special_tokens=False)
        if text.endswith("\\ufffd") and end < len(ids):
            texts.append("")
            continue
        texts.append(text[len(shown) :])
        shown = text
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
