r"""Finds what an agent answers: the ``\boxed{...}`` of a text, the last line of an output.

Owns extraction only; never judges. All of it is linear in the text's length.
"""

import re
from dataclasses import dataclass

MAX_TEXT_CHARS = 64_000
"""Longer completions are read from their end only."""

MAX_ANSWER_CHARS = 256
"""A longer answer is no answer."""

MAX_OPEN = 16
"""Boxes that never close, after which the rest of the text is not searched."""

_OPEN = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Boxed:
    """The last closed box of a text, and whether all of its boxes say the same.

    ``answer`` is None when there is none, or it is empty or too long.
    """

    answer: str | None
    is_single: bool


def read_boxed(text: str) -> Boxed:
    r"""The last ``\boxed{...}`` of ``text``, braces matched; never fails.

    Example: ``read_boxed(r"so \boxed{\frac{1}{2}}.").answer == r"\frac{1}{2}"``.
    """
    boxes = _boxes(text[-MAX_TEXT_CHARS:])
    if not boxes or not 0 < len(boxes[-1]) <= MAX_ANSWER_CHARS:
        return Boxed(None, is_single=False)
    return Boxed(boxes[-1], is_single=len(set(boxes)) == 1)


def read_printed(output: str) -> str | None:
    """What a program printed as its answer: the last line that is not blank, or None."""
    lines = output.rstrip().rsplit("\n", 1)
    last = lines[-1].strip()
    if box := read_boxed(last).answer:
        return box
    return last if 0 < len(last) <= MAX_ANSWER_CHARS else None


def _boxes(text: str) -> list[str]:
    """Contents of the outermost closed boxes, in order; a few that stay open are passed over."""
    boxes: list[str] = []
    at = num_open = 0
    while num_open < MAX_OPEN and (opened := _OPEN.search(text, at)):
        end = _closing(text, opened.end())
        if end is None:
            at, num_open = opened.end(), num_open + 1
        else:
            boxes.append(text[opened.end() : end].strip())
            at = end + 1
    return boxes


def _closing(text: str, start: int) -> int | None:
    """Index of the brace that closes the group whose content begins at ``start``."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return brace.start()
    return None
