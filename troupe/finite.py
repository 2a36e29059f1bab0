"""Tells finite numbers from all else that code of a user may give for one."""

import math
from typing import Any


def is_finite(value: Any) -> bool:
    """Whether ``value`` is a number, of any library, that is neither NaN nor infinite."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False
