"""Tells finite numbers from all else that code of a user may give; JSON knows no others."""

import math
from collections.abc import Mapping
from typing import Any


def is_finite(value: Any) -> bool:
    """Whether ``value`` is a number, of any library, that is neither NaN nor infinite."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor of several
        return False


def finite_only(document: Any) -> Any:
    """``document`` of JSON values with None in place of each number that JSON does not know."""
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, Mapping):
        return {name: finite_only(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [finite_only(value) for value in document]
    return document
