"""Plain values on their way between a judged program and the judge.

Values travel as tagged JSON, and literals in problems are parsed as literals: nothing that a
program or an agent writes is ever evaluated or unpickled. The tags are those of ``guest``.
"""

import ast
import json
import math
from collections.abc import Hashable, Iterable
from typing import Any

from troupe.errors import InvalidArgumentError

Value = Any
"""None, bool, int, float, str, bytes, or a list, tuple, set or dict of values."""

MAX_LITERAL_CHARS = 1_000_000
MAX_DEPTH = 60
MAX_EQUAL_HASHES = 8
"""Different values of one hash in one set or dict; numbers can be chosen to share theirs."""


class UnreadableError(ValueError):
    """Text that is not a plain value; the caller decides whose failure that is."""


def parse_literal(text: str, *, max_chars: int = MAX_LITERAL_CHARS) -> Value:
    """The value of a Python literal; raises UnreadableError for anything else."""
    if len(text) > max_chars:
        raise UnreadableError(f"the literal has {len(text)} characters, more than {max_chars}")
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UnreadableError(f"{text[:80]!r} is not a Python literal ({error})") from error


def parse_arguments(text: str, *, max_chars: int = MAX_LITERAL_CHARS) -> tuple[Value, ...]:
    """The arguments that the ``input`` of a call test holds; raises UnreadableError."""
    value = parse_literal(text, max_chars=max_chars)
    if not isinstance(value, tuple):
        raise UnreadableError(f"{text[:80]!r} is not a tuple of arguments; write (x,) for one")
    return value


def encode(value: Value) -> Any:
    """JSON-serialisable form of a plain value; ``decode`` is the inverse."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"f": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"t": [encode(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"s": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"d": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, complex):
        return {"c": [encode(value.real), encode(value.imag)]}
    raise InvalidArgumentError(f"a {type(value).__name__} is no plain value")


def decode(data: Any, depth: int = 0) -> Value:
    """The value that ``encode`` wrote; raises UnreadableError on anything else."""
    if depth > MAX_DEPTH:
        raise UnreadableError(f"a value is nested more than {MAX_DEPTH} deep")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [decode(item, depth + 1) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise UnreadableError("a value has an unknown form")
    ((tag, body),) = data.items()
    try:
        return _tagged(tag, body, depth)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UnreadableError(f"a value tagged {tag!r} cannot be read ({error})") from error


def decode_text(text: str) -> Value:
    """The value in a JSON text; raises UnreadableError."""
    try:
        return decode(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(str(error)) from error


def hashable(values: Iterable[Hashable]) -> list[Hashable]:
    """``values``, safe to put into a set or dict here; raises UnreadableError when they are not.

    A program may return numbers that all have one hash: a set of 20,000 of them takes seconds.
    """
    listed = list(values)
    if len(listed) - len(set(map(hash, listed))) < MAX_EQUAL_HASHES:
        return listed
    of_hash: dict[int, list[Hashable]] = {}
    for value in listed:
        others = of_hash.setdefault(hash(value), [])
        if value not in others:
            others.append(value)
            if len(others) > MAX_EQUAL_HASHES:
                raise UnreadableError(f"{len(others)} different values have one hash")
    return listed


def _tagged(tag: str, body: Any, depth: int) -> Value:
    if tag == "f":
        return float({"inf": "inf", "-inf": "-inf", "nan": "nan"}[body])
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "c":
        real, imaginary = (decode(part, depth + 1) for part in body)
        return complex(real, imaginary)
    if tag == "d":
        keys = hashable(_key(decode(k, depth + 1)) for k, _ in body)
        return {key: decode(v, depth + 1) for key, (_, v) in zip(keys, body, strict=True)}
    items = [decode(item, depth + 1) for item in body]
    if tag == "t":
        return tuple(items)
    if tag == "s":
        return set(hashable(map(_key, items)))
    raise UnreadableError(f"unknown tag {tag!r}")


def _key(value: Value) -> Hashable:
    """Sets hold sets only frozen; a list as a key is a TypeError, as in Python."""
    return frozenset(value) if isinstance(value, set) else value
