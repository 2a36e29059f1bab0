"""Plain values as tagged JSON and back, as in ``troupe_tasks.code.values``."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class OpaqueError(Exception):
    """A value that is not plain."""


def encoded(value: Any, depth: int = 0) -> Any:
    """Tagged JSON of a plain value."""
    if depth > 50:
        raise OpaqueError("something nested too deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else {"f": float.__repr__(number)}
    if isinstance(value, (bytes, bytearray)):
        return {"b": value.hex()}
    if isinstance(value, complex):
        return {"c": [encoded(value.real, depth + 1), encoded(value.imag, depth + 1)]}
    if isinstance(value, dict):
        items: Any = dict.items(value)
        return {"d": [[encoded(k, depth + 1), encoded(v, depth + 1)] for k, v in items]}
    is_deque = type(value).__module__ == "collections" and type(value).__name__ == "deque"
    if not is_deque and not isinstance(value, (list, tuple, set, frozenset)):
        raise OpaqueError(f"a {type(value).__name__}")
    parts = [encoded(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"t": parts}
    return {"s": parts} if isinstance(value, (set, frozenset)) else parts


def decoded(data: Any) -> Any:
    """The value that the judge encoded."""
    if isinstance(data, list):
        return [decoded(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((tag, body),) = data.items()
    if tag == "f":
        return float(body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "c":
        return complex(*map(decoded, body))
    if tag == "d":
        return {decoded(key): decoded(item) for key, item in body}
    items = [decoded(item) for item in body]
    if tag == "t":
        return tuple(items)
    return {frozenset(item) if isinstance(item, set) else item for item in items}
