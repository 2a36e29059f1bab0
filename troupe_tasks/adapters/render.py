"""Foreign observations as text: deterministic, short, and of any nesting."""

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_CHARS = 4000
"""Characters of an observation that a prompt shows."""

MAX_ITEMS = 64
"""Elements of one array that are shown."""


def render(observation: Any) -> str:
    """``observation`` as text, cut to MAX_CHARS.

    Numbers are rounded to 4 significant digits; arrays become nested lists, mappings
    ``key: value`` lines. An image has no useful text: give a renderer of your own.
    """
    return _text(observation)[:MAX_CHARS]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_text(part)}" for key, part in value.items())
    return _inline(value)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_inline(part)}" for key, part in value.items()) + "}"
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(_inline(part) for part in value[:MAX_ITEMS]) + "]"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    return str(value)


def _array(value: np.ndarray[Any, Any]) -> str:
    if value.ndim == 0:
        return _inline(value.item())
    shown = " ".join(_inline(part) for part in value[:MAX_ITEMS])
    return f"[{shown} ...]" if len(value) > MAX_ITEMS else f"[{shown}]"
