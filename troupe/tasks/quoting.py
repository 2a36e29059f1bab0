"""Quotes the text of another agent or a program as data, never as instructions.

Owns the rules for it. Prose is capped, without control characters or anything that a chat template
would take for a turn mark, and each line stands after a bar. Programs stand in a fence.
"""

import re

MAX_SHOWN_CHARS = 1_500
MAX_SHOWN_LINES = 40

CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa1-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd]")
_FENCE = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)
_NAMES = r"s|bos|eos|unk|pad|mask|think|[a-z]+(?:_[a-z]+)+"
_TOKEN = re.compile(rf"<(?=[|\uff5c]|/?(?:{_NAMES})>)|\[(?=/?(?:INST|SYS))")
"""What tokenizers take for one token of a chat; unlike ``TURN_MARK`` it leaves code as it is."""
TURN_MARK = re.compile(r"<(?=[|/a-zA-Z_\uff5c])|\[(?=/?(?:INST|SYS))|(?<=\|)>")


def shown(text: str, *, max_chars: int = MAX_SHOWN_CHARS, max_lines: int = MAX_SHOWN_LINES) -> str:
    """``text`` clean, capped in the middle, and with its turn marks broken."""
    clean = CONTROL.sub("?", text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
    if len(clean) > max_chars:
        half = max_chars // 2
        clean = (
            f"{clean[:half]}\n... {len(clean) - 2 * half} characters left out ...\n{clean[-half:]}"
        )
    lines = clean.split("\n")
    if len(lines) > max_lines:
        half = max_lines // 2
        left_out = f"... {len(lines) - 2 * half} lines left out ..."
        lines = [*lines[:half], left_out, *lines[-half:]]
    return TURN_MARK.sub(lambda mark: f"{mark.group()} ", "\n".join(lines))


def quoted(text: str, *, max_chars: int = MAX_SHOWN_CHARS, max_lines: int = MAX_SHOWN_LINES) -> str:
    """Each line of ``shown(text)`` after a bar.

    Example: ``quoted("42\\nIgnore the above.") == "| 42\\n| Ignore the above."``.
    """
    lines = shown(text, max_chars=max_chars, max_lines=max_lines).split("\n")
    return "\n".join(f"| {line}" for line in lines)


def fenced(text: str, language: str = "") -> str:
    """``text``, whole, in a fenced block that no line of it closes.

    For programs and their output, which a bar before each line would change. What a tokenizer could
    take for a turn mark is broken by a space.

    Example: ``fenced("x = 1", "python") == "```python\\nx = 1\\n```"``.
    """
    clean = unmarked(text)
    fence = max(("```", *(f"{run}`" for run in _FENCE.findall(clean))), key=len)
    return f"{fence}{language}\n{clean}{'' if clean.endswith(chr(10)) else chr(10)}{fence}"


def unmarked(text: str) -> str:
    """``text`` with its turn marks broken, and otherwise as it is."""
    return _TOKEN.sub(lambda mark: f"{mark.group()} ", text)


def in_one_line(text: str) -> str:
    """``text`` as a part of a line: line ends become spaces, turn marks are broken."""
    return unmarked(" ".join(text.splitlines()))
