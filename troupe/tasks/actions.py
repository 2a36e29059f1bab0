"""Actions: what an agent's completion says, and whether a bound cut it short."""

from typing import Any, cast

MAX_LEVELS = 20
"""Objects and lists of JSON in one another; much deeper ones can be read and not be written."""


class CutAction(str):
    """A completion that a bound cut short; equal to its text.

    An environment that reads the text alone need not know of it. Slicing gives a plain text.

    Example: ``CutAction("so the sum is") == "so the sum is"``, and ``is_cut`` holds of it alone.
    """

    __slots__ = ()


def is_cut(action: str) -> bool:
    """Whether a bound cut ``action`` short, as far as is known."""
    return isinstance(action, CutAction)


def is_shallow(document: Any) -> bool:
    """Whether the JSON value ``document`` has at most ``MAX_LEVELS`` levels.

    Example: ``is_shallow([[1]])`` holds, and ``is_shallow(json.loads("[" * 500 + "]" * 500))`` not.
    """
    parts = [document]
    for _ in range(MAX_LEVELS):
        items = [item for part in parts for item in _items(part)]
        parts = [item for item in items if isinstance(item, dict | list)]
        if not parts:
            return True
    return False


def _items(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return list(cast("dict[str, Any]", part).values())
    return cast("list[Any]", part) if isinstance(part, list) else []
