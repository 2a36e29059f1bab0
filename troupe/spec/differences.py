"""Where two documents differ, by JSON pointer. Pure."""

from collections.abc import Iterator
from typing import Any

from troupe.spec.issues import pointer_of


def differences(old: Any, new: Any, pointer: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Pointer, old and new value of each leaf that differs; None where one is not there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            inner = f"{pointer}{pointer_of([name])}"
            yield from differences(old.get(name), new.get(name), inner)
    elif old != new:
        yield pointer, old, new
