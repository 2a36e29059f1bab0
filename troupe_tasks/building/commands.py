"""Reads ``fill`` and ``setblock`` commands, one a line, as the game writes them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from troupe_tasks.building.blueprint import AIR, Cell

_NUMBER = r"\s+(\d{1,3})"
_LINE = re.compile(
    rf"/?(?:fill{_NUMBER}{_NUMBER}{_NUMBER}{_NUMBER}{_NUMBER}{_NUMBER}"
    rf"|setblock{_NUMBER}{_NUMBER}{_NUMBER})\s+(?:minecraft:)?([a-z_]{{1,40}}|\.)",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"/?(?:fill|setblock)\b", re.IGNORECASE)
_BULLET = re.compile(r"(?:[-*]|\d{1,3}[.)])\s+")
MAX_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Command:
    """Put ``letter`` (or air) into all cells between two corners, both included."""

    low: Cell
    high: Cell
    letter: str


@dataclass(frozen=True, slots=True)
class Commands:
    """What an answer holds: commands in order; None for one that names no known material."""

    items: tuple[Command | None, ...]
    is_well_formed: bool


def read_commands(text: str, materials: Mapping[str, str], max_commands: int) -> Commands:
    """The first ``max_commands`` commands of ``text``; other lines are prose.

    The form is right when there is a command, no line begins like one without being one, and there
    are not too many. Materials may be named by letter or by name.

    Example: ``read_commands("fill 0 0 0 1 0 0 stone", {"s": "stone"}, 4).items``.
    """
    names = {name.lower(): letter for letter, name in materials.items()}
    names |= {letter.lower(): letter for letter in materials} | {"air": AIR, AIR: AIR}
    items: list[Command | None] = []
    is_well_formed = len(text) <= MAX_CHARS
    for raw in text[:MAX_CHARS].split("\n"):
        line = _BULLET.sub("", raw.strip(" \t\r`"), count=1).strip(" \t`")
        if not _BEGINS.match(line):
            continue
        match = _LINE.fullmatch(line)
        if match is None or len(items) == max_commands:
            is_well_formed = False
            if len(items) == max_commands:
                break
            continue
        letter = names.get(match[10].lower())
        items.append(None if letter is None else _command(match, letter))
    return Commands(tuple(items), is_well_formed and bool(items))


def _command(match: re.Match[str], letter: str) -> Command:
    numbers = [int(number) for number in match.groups()[:9] if number is not None]
    first, last = (numbers[:3], numbers[3:] or numbers[:3])
    pairs = [(min(a, b), max(a, b)) for a, b in zip(first, last, strict=True)]
    (x, x2), (y, y2), (z, z2) = pairs
    return Command((x, y, z), (x2, y2, z2), letter)


def command_text(command: Command) -> str:
    """The line that ``read_commands`` reads as ``command``."""
    corners = (command.low,) if command.low == command.high else (command.low, command.high)
    numbers = " ".join(str(number) for corner in corners for number in corner)
    return f"{'setblock' if len(corners) == 1 else 'fill'} {numbers} {command.letter}"
