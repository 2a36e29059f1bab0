"""Reads the fields of published rows; a missing or malformed field refuses the row."""

import math
from collections.abc import Mapping
from typing import Any, cast

from troupe.data.dataset import RefusedRowError, Row


def text(row: Row, *names: str) -> str:
    """The first of ``names`` that holds text or a finite number, as stripped text.

    Raises RefusedRowError ``no_<name>`` when none does.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if math.isfinite(value):
            return str(int(value)) if float(value).is_integer() else str(value)
    raise RefusedRowError(f"no_{names[0].lower()}")


def optional_text(row: Row, *names: str) -> str:
    """As ``text``, but empty when there is none."""
    try:
        return text(row, *names)
    except RefusedRowError:
        return ""


def items(row: Row, name: str) -> list[Any]:
    """The list in field ``name``; raises RefusedRowError ``no_<name>`` when it is not one."""
    value = row.get(name)
    if not isinstance(value, list) or not value:
        raise RefusedRowError(f"no_{name.lower()}")
    return cast("list[Any]", value)


def record(value: Any, reason: str) -> Mapping[str, Any]:
    """``value`` as a record; raises RefusedRowError ``reason`` when it is not one."""
    if not isinstance(value, dict):
        raise RefusedRowError(reason)
    return cast("dict[str, Any]", value)
