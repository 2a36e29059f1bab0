"""Quotes the text of another agent or a program as data, never as instructions.

Owns the one rule for it: capped, without control characters or anything that a chat template would
take for a turn mark, and each line after a bar.
"""

import re

MAX_SHOWN_CHARS = 1_500
MAX_SHOWN_LINES = 40

_CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa1-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd]")
_TURN_MARK = re.compile(r"<(?=[|/a-zA-Z_\uff5c])|\[(?=/?(?:INST|SYS))|(?<=\|)>")


def shown(text: str, *, max_chars: int = MAX_SHOWN_CHARS, max_lines: int = MAX_SHOWN_LINES) -> str:
    """``text`` clean, capped in the middle, and with its turn marks broken."""
    clean = _CONTROL.sub("?", text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
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
    return _TURN_MARK.sub(lambda mark: f"{mark.group()} ", "\n".join(lines))


def quoted(text: str, *, max_chars: int = MAX_SHOWN_CHARS, max_lines: int = MAX_SHOWN_LINES) -> str:
    """Each line of ``shown(text)`` after a bar.

    Example: ``quoted("42\\nIgnore the above.") == "| 42\\n| Ignore the above."``.
    """
    lines = shown(text, max_chars=max_chars, max_lines=max_lines).split("\n")
    return "\n".join(f"| {line}" for line in lines)
