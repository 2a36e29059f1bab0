"""Whether two models read text in the same tokens.

Owns the comparison and its refusals. Never loads a model's weights.
"""

from collections.abc import Mapping
from typing import Any, Literal

from transformers import AutoTokenizer

from troupe.errors import InvalidArgumentError


def check_same_tokens(
    model: str, policy: str, other: str, *, role: Literal["teacher", "critic"], pointer: str
) -> Mapping[str, int]:
    """The vocabulary, token to id, of ``policy``'s ``model``, which ``other`` reads.

    ``role`` is what ``other`` is to the policy. A critic may have tokens more: it writes none.

    Raises:
        InvalidArgumentError: a tokenizer can't be loaded, or the vocabularies differ.
    """
    own, others = (_vocabulary(name, policy, role, pointer) for name in (model, other))
    if own == others or (role == "critic" and own.items() <= others.items()):
        return own
    differ = sorted(
        token for token in own.keys() | others.keys() if own.get(token) != others.get(token)
    )
    first = differ[0]
    raise InvalidArgumentError(
        f"The {role} '{other}' of policy '{policy}' has another vocabulary than '{model}': "
        f"{len(differ)} tokens differ, the first is {first!r} ({_number(own, first)} in the "
        f"policy's, {_number(others, first)} in the {role}'s). Take a {role} of the same family, "
        "whose tokenizer is the same.",
        pointer=pointer,
    )


def _vocabulary(model: str, policy: str, role: str, pointer: str) -> Mapping[str, int]:
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model)
        return tokenizer.get_vocab()
    except (OSError, ValueError, KeyError) as error:
        raise InvalidArgumentError(
            f"The tokenizer of '{model}' can't be loaded: {error}. Policy '{policy}' and its "
            f"{role} need one each, to compare them; give model folders that have one.",
            pointer=pointer,
        ) from error


def _number(vocabulary: Mapping[str, int], token: str) -> str:
    return f"number {vocabulary[token]}" if token in vocabulary else "not there"
