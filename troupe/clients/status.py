"""Encodes an error as a gRPC status: its message, its reason and its place in the request.

Owns what fits into a status. gRPC refuses to send what does not fit and reports that instead of the
error (INTERNAL, RESOURCE_EXHAUSTED) or, for half a surrogate pair, nothing at all.
"""

from collections.abc import Mapping
from itertools import accumulate
from urllib.parse import quote, unquote

from troupe.errors import TroupeError

REASON_KEY = "troupe-reason"
"""Trailing metadata: the error's stable reason."""
POINTER_KEY = "troupe-pointer"
"""Trailing metadata: JSON pointer into the offending document, percent-encoded."""
MAX_WORDS_BYTES = 6000
MAX_POINTER_BYTES = 1000
"""Encoded size. By default a peer accepts 8 KiB of message and metadata together."""

_AS_THEY_ARE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def sendable(message: str) -> str:
    """``message`` as a status can carry it: truncated if too long, without lone surrogates."""
    whole = message.encode("utf-8", "replace").decode("utf-8")
    if len(_encoded(whole)) <= MAX_WORDS_BYTES:
        return whole
    ending = f" ... ({len(whole)} characters)"
    room = MAX_WORDS_BYTES - len(ending)
    sizes = accumulate(len(_encoded(character)) for character in whole)
    return whole[: next(i for i, size in enumerate(sizes) if size > room)] + ending


def trailing_of(error: TroupeError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata of the error's status, without a pointer that is too long."""
    pointer = _encoded(error.pointer or "")
    pairs = [(REASON_KEY, error.reason)]
    if pointer and len(pointer) <= MAX_POINTER_BYTES:
        pairs.append((POINTER_KEY, pointer))
    return tuple(pairs)


def pointer_in(trailing: Mapping[str, str]) -> str | None:
    """The pointer that ``trailing_of`` put there."""
    pointer = trailing.get(POINTER_KEY)
    return None if pointer is None else unquote(pointer)


def _encoded(text: str) -> str:
    """Encode as gRPC does (but for spaces): printable ASCII, the rest percent-encoded UTF-8."""
    return quote(text, safe=_AS_THEY_ARE, errors="replace")
