"""Reads a record of a run folder, whatever lies in its place: trainers and users write there too.

Owns what counts as a file and as a line of a record. No link is followed, no pipe waited for, and
no line of a size without bound is read.
"""

import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from troupe.ids import eval_round, train_round

MAX_LINE_BYTES = 256 << 20
"""A longer line is none of a record: a crash can leave zeros of any length."""
_MAX_STEP = 2**31
_PART_NAME = re.compile(r"(eval|train)-([0-9]{5,10})")


def open_plain(path: Path) -> BinaryIO | None:
    """The file for reading; None where there is none or something else in its place."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            return open(path, "rb", opener=lambda name, _: os.open(name, flags))
    except FileNotFoundError:
        pass
    return None


def open_record(path: Path) -> BinaryIO | None:
    """``open_plain`` for who writes the record: something else is renamed, ``<name>.aside-...``."""
    file = open_plain(path)
    if file is None:
        with suppress(FileNotFoundError):
            path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))
    return file


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Every line from the present place on, and the place where it begins."""
    place = file.tell()
    while line := file.readline(MAX_LINE_BYTES):
        size = len(line)
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)
            size += len(line)
        if size == len(line):
            yield place, line
        place += size


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The object that a whole line holds; None of a torn one or one that is no JSON."""
    if not line.endswith(b"\n"):
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def part_name(line: Mapping[str, Any]) -> str:
    """The part that a line belongs to, such as "train-00012"; "" where it names none."""
    kind, step = line.get("kind"), line.get("step")
    if type(step) is not int or not 0 <= step < _MAX_STEP or kind not in ("eval", "train"):
        return ""
    return eval_round(step) if kind == "eval" else train_round(step)


def is_part_name(name: Any) -> bool:
    """Whether ``name`` is one that ``part_name`` returns."""
    named = _PART_NAME.fullmatch(name) if isinstance(name, str) else None
    return named is not None and name == part_name({"kind": named[1], "step": int(named[2])})
