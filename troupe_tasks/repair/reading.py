"""The reader's commands: search, open, show and note, one a line, and what they answer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from troupe_tasks.repair.repository import Files

MAX_READS = 4
OPEN_LINES = 40
SHOW_LINES = 16
MAX_SHOWS = 2
MAX_HITS = 8
NOTE_CHARS = 300
WAIT = "wait"

_LINE = re.compile(r"(search|open|show|note)\b[ \t:]*(.*)", re.IGNORECASE)
_PLACE = re.compile(r"(\S{1,80})(?:\s+(\d{1,5}))?(?:\s*(?:-|\s)\s*(\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the commands of one turn gave: ``found`` for the reader, ``handed`` for the fixer."""

    found: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()
    shown: tuple[tuple[str, int, int], ...] = ()
    """Path, first and last line of what was handed over."""
    is_well_formed: bool = False
    is_valid: bool = True


def read(files: Files, text: str) -> Reading:
    """Do the first commands of ``text``; lines that are none are prose."""
    commands = [match for line in text[:20_000].split("\n") if (match := _command(line))]
    found: list[str] = []
    handed: list[str] = []
    shown: list[tuple[str, int, int]] = []
    is_valid = True
    for match in commands[:MAX_READS]:
        verb, rest = match[1].lower(), match[2].strip()
        if verb == "note":
            handed.append(f"note: {rest[:NOTE_CHARS]}")
        elif verb == "search":
            found.append(_searched(files, rest))
        else:
            place = _placed(files, rest)
            if place is None or (verb == "show" and len(shown) == MAX_SHOWS):
                is_valid = False
                found.append("there are no such lines" if place is None else "too much to show")
                continue
            path, first, last = place
            size = OPEN_LINES if verb == "open" else SHOW_LINES
            last = min(last, first + size - 1)
            if verb == "open":
                found.append(numbered(files, path, first, last))
            else:
                handed.append(numbered(files, path, first, last))
                shown.append((path, first, last))
    is_waiting = not commands and text.strip().lower() == WAIT
    return Reading(
        tuple(found),
        tuple(handed),
        tuple(shown),
        is_waiting or 0 < len(commands) <= MAX_READS,
        is_valid,
    )


def numbered(files: Files, path: str, first: int, last: int) -> str:
    """Lines ``first`` to ``last`` of a file with their numbers, from 1 on."""
    lines = files[path].splitlines()
    picked = enumerate(lines[first - 1 : last], start=first)
    return "\n".join([f"{path}:", *(f"{number:3} {line}" for number, line in picked)])


def outline(files: Files) -> list[str]:
    """Paths with their numbers of lines, and where their functions begin."""
    lines: list[str] = []
    for path, text in files.items():
        rows = text.splitlines()
        lines.append(f"{path} ({len(rows)} lines)")
        lines += [
            f"  {number} {row.removeprefix('def ').partition('(')[0]}"
            for number, row in enumerate(rows, start=1)
            if row.startswith("def ")
        ]
    return lines


def _command(line: str) -> re.Match[str] | None:
    return _LINE.fullmatch(line.strip(" \t\r-*`")[:500])


def _searched(files: Files, wanted: str) -> str:
    hits: list[str] = []
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if wanted and wanted in line and len(hits) < MAX_HITS:
                hits.append(f"{path}:{number} {line.strip()}")
    return "\n".join(hits) or "nothing has that text"


def _placed(files: Mapping[str, str], rest: str) -> tuple[str, int, int] | None:
    match = _PLACE.fullmatch(rest.replace(":", " "))
    if match is None or match[1] not in files:
        return None
    num_lines = len(files[match[1]].splitlines())
    first = int(match[2] or 1)
    last = int(match[3] or num_lines)
    if not 1 <= first <= min(last, num_lines):
        return None
    return match[1], first, min(last, num_lines)


def covers(shown: Sequence[tuple[str, int, int]], path: str, line: int) -> bool:
    """Whether line ``line`` of ``path`` was handed over."""
    return any(p == path and first <= line <= last for p, first, last in shown)
