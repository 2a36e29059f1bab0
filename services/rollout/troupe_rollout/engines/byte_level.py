"""Decodes tokens of byte-level vocabularies (GPT-2's kind: Qwen, Llama 3) from a table.

A tokenizer looks each id up, copies its string and turns characters into bytes again and again,
which is a sixth of all that a sidecar does with a sampled token. Owns the table; never encodes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import decoders

KEPT_TABLES = 8
"""Tokenizers, used last, whose tables are kept; they stay in memory with them."""


class ByteTable:
    """The bytes that each id stands for; those of special tokens are none."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text, without special tokens; what is no UTF-8 becomes U+FFFD, as in the tokenizer.

        Ids that no token has, as where a model's vocabulary is padded, stand for nothing.
        """
        try:
            data = b"".join(map(self._pieces.__getitem__, token_ids))
        except IndexError:
            data = b"".join(self._pieces[i] for i in token_ids if i < len(self._pieces))
        return data.decode("utf-8", "replace")


@lru_cache(maxsize=KEPT_TABLES)
def byte_table(tokenizer: Any) -> ByteTable | None:
    """The table of a fast tokenizer; None where it is of another kind, or the two differ.

    ``tokenizer`` is transformers', and no token is added to it later. The whole vocabulary is
    decoded by both once for each object: the policies of one model share theirs.
    """
    if not getattr(tokenizer, "is_fast", False) or tokenizer.clean_up_tokenization_spaces:
        return None
    backend = tokenizer.backend_tokenizer
    if not isinstance(backend.decoder, decoders.ByteLevel):
        return None
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    bytes_of = _bytes_of_characters()
    for token, number in vocabulary.items():
        if number not in added or not added[number].special:
            pieces[number] = _bytes(token, bytes_of)
    table, every = ByteTable(pieces), list(range(len(pieces)))
    agrees = table.decode(every) == backend.decode(every, skip_special_tokens=True)
    return table if agrees else None


def _bytes(token: str, bytes_of: dict[str, int]) -> bytes:
    """Bytes of a token's characters; of one that holds others, as an added token may, its text."""
    try:
        return bytes(bytes_of[character] for character in token)
    except KeyError:
        return token.encode()


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones stand for themselves, the others follow 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [*map(chr, printable), *(chr(256 + n) for n in range(len(others)))]
    return dict(zip(characters, [*printable, *others], strict=True))
