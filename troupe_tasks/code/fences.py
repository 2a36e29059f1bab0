"""Finds fenced blocks in what agents write, in one pass over its lines.

Line by line because an agent may write a million characters: a pattern over the whole text tries
each opening fence against all that follows it.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

PYTHON = ("python", "py", "python3", "py3")
_OPENING = re.compile(r"```[ \t]*(?:(\w+)[ \t]*)?")
_INDENTED_OPENING = re.compile(r"([ \t]+)" + _OPENING.pattern)
_TEST_OPENING = re.compile(r"```\w*[ \t]*")
_INPUT, _OUTPUT = "Test Input:", "Test Output:"


def marked(text: str, marks: Collection[str]) -> list[str]:
    """Contents of the blocks with one of ``marks``, in any case, and before them of those without
    a mark: the last is what an agent means that also shows an output.

    Example: ``marked("```py\\nf()\\n```\\n```\\n3\\n```", PYTHON) == ["3\\n", "f()\\n"]``.
    """
    found = [(mark.casefold(), content) for mark, content in blocks(text)]
    plain = [content for mark, content in found if not mark]
    return plain + [content for mark, content in found if mark in marks]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block; one that is never closed is none.

    Where no line begins with a fence, those that are indented, such as in a list: without its
    indent on each line, as in CommonMark, and up to a fence as far in as its first.

    Example: ``list(blocks("a\\n```py\\nb\\n```")) == [("py", "b\\n")]``.
    """
    lines = _lines(text)
    is_outermost = any(line.startswith("```") for line in lines)
    yield from _at_line_starts(lines) if is_outermost else _indented(lines)


def _at_line_starts(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    start, language = -1, ""
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start >= 0 and _is_closing(line):
            yield language, _content(lines, start, number)
            start = -1
        elif start < 0 and number + 1 < len(lines) and (match := _OPENING.fullmatch(line)):
            start, language = number + 1, match[1] or ""


def _indented(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    closings: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if line.strip(" \t") == "```":
            closings.setdefault(line[: line.index("`")], []).append(number)
    at = 0
    for number, line in enumerate(lines):
        if number < at or not (match := _INDENTED_OPENING.fullmatch(line)):
            continue
        end = _first(closings.get(match[1], ()), number + 1)
        if end is not None:
            inner = [_less_far_in(line, match[1]) for line in lines[number + 1 : end]]
            yield match[2] or "", _content(inner, 0, len(inner))
            at = end + 1


def _less_far_in(line: str, indent: str) -> str:
    return line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t")


def stdin_tests(text: str) -> Iterator[tuple[str, str]]:
    """Contents of each pair of blocks that are headed ``Test Input:`` and ``Test Output:``."""
    lines = _lines(text)
    closings = [number for number, line in enumerate(lines) if _is_closing(line)]
    outputs = {end: start for end in closings if (start := _output_start(lines, end))}
    ends = list(outputs)
    at = 0
    for number in range(len(lines) - 2):
        if number < at or not _is_input(lines, number):
            continue
        end = _first(ends, number + 2)
        close = None if end is None else _first(closings, outputs[end])
        if end is not None and close is not None:
            yield _content(lines, number + 2, end), _content(lines, outputs[end], close)
            at = close


def _lines(text: str) -> list[str]:
    """Without the carriage returns of a text whose lines all end with one."""
    num_returns = text.count("\r\n")
    return text.split("\r\n" if num_returns and num_returns == text.count("\n") else "\n")


def _is_closing(line: str) -> bool:
    return line.startswith("```") and not line[3:].strip(" \t")


def _is_input(lines: Sequence[str], number: int) -> bool:
    return lines[number].rstrip(" \t") == _INPUT and _opens(lines, number + 1)


def _opens(lines: Sequence[str], number: int) -> bool:
    """A fence is opened there, and a line comes after it."""
    return number + 1 < len(lines) and _TEST_OPENING.fullmatch(lines[number]) is not None


def _output_start(lines: Sequence[str], closing: int) -> int | None:
    """Where the output begins when the block that ends at ``closing`` may be an input."""
    number = closing + 1
    while number < len(lines) and not lines[number]:
        number += 1
    is_headed = number < len(lines) and lines[number].rstrip(" \t") == _OUTPUT
    return number + 2 if is_headed and _opens(lines, number + 1) else None


def _first(numbers: Sequence[int], least: int) -> int | None:
    at = bisect_left(numbers, least)
    return numbers[at] if at < len(numbers) else None


def _content(lines: Sequence[str], start: int, end: int) -> str:
    return "".join(f"{line}\n" for line in lines[start:end])
