"""Functions of SQL whose built-in forms are unbounded or impure, replaced by metered ones.

A progress handler counts operations and sees nothing inside one function call: ``x LIKE '%a%a%b'``
is one operation of exponential time, ``instr`` of quadratic time. ``date('now')`` reads a clock.
Here each call pays for its length out of the query's budget, LIKE also for each part of its pattern
and each comparison, and the clock is refused.
"""

import sqlite3
import string
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

CALL_COST = 40
"""Operations that a call costs besides its length. One of SQLite's takes about 20 ns."""
STEP_COST = 16
"""Operations for each part of a LIKE pattern, and for each comparison that it needs."""
DATE_COST = 500
MAX_RESULT = 2_000
"""Characters of a result."""
MAX_PATTERN = 2_000
"""Characters of a LIKE pattern, which is read and kept."""
MAX_DATE_ARGUMENTS, MAX_DATE_CHARS = 6, 60

Charge = Callable[[int], None]
"""Takes operations from the query's budget; raises when it is spent."""

_DATES = {"date": 1, "time": 1, "datetime": 1, "julianday": 1, "strftime": 2}
"""Date functions and the number of arguments below which they read the clock."""
_CLOCK = {"now", "localtime", "utc", "subsec", "subsecond"}
"""The last two, alone, are the present moment since SQLite 3.42."""
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

REPLACED = frozenset({"like", "instr", "replace", "trim", "ltrim", "rtrim", *_DATES})


class RefusedCallError(Exception):
    """A call that a pure query may not make."""


@contextmanager
def installed(connection: sqlite3.Connection, charge: Charge) -> Generator[None]:
    """The functions of ``REPLACED`` in ``connection`` are the replaced ones."""
    text = _metered(charge)
    like = text(_like_function(charge))
    for arity in (2, 3):
        connection.create_function("like", arity, like, deterministic=True)
    connection.create_function("instr", 2, text(_instr), deterministic=True)
    connection.create_function("replace", 3, text(_replace), deterministic=True)
    for name, strip in (("trim", str.strip), ("ltrim", str.lstrip), ("rtrim", str.rstrip)):
        for arity in (1, 2):
            connection.create_function(name, arity, text(_stripped(strip)), deterministic=True)
    dates = _Dates(charge)
    for name, least in _DATES.items():
        connection.create_function(name, -1, dates.function(name, least), deterministic=True)
    try:
        yield
    finally:
        dates.close()


def _metered(charge: Charge) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            texts = [value if type(value) is str else _text(value) for value in values]
            lengths = [len(text) for text in texts if text is not None]
            if len(lengths) < len(texts):
                charge(CALL_COST + sum(lengths))
                return None
            charge(CALL_COST + sum(lengths) + max(lengths) * min(lengths) // 8)
            return function(*texts)

        return call

    return wrap


def _text(value: Any) -> str | None:
    """What SQLite makes of a value that is used as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return repr(value) if isinstance(value, float) else str(value)


class _Stretch(NamedTuple):
    """What stands between two % of a pattern: literals at their offsets, _ everywhere else."""

    literals: tuple[tuple[int, str], ...]
    length: int

    @property
    def cost(self) -> int:
        return STEP_COST * len(self.literals)

    def fits(self, text: str, at: int) -> bool:
        """Whether it stands in ``text`` at ``at``."""
        if at + self.length > len(text):
            return False
        return all(text.startswith(literal, at + offset) for offset, literal in self.literals)

    def place(self, text: str, at: int, charge: Charge) -> int:
        """Its first place from ``at`` on; -1 when there is none."""
        if not self.literals:
            return at if self.fits(text, at) else -1
        offset, literal = self.literals[0]
        while True:
            charge(self.cost)
            found = text.find(literal, at + offset)
            if found < 0 or self.fits(text, found - offset):
                return found - offset if found >= 0 else -1
            at = found - offset + 1


def _like_function(charge: Charge) -> Callable[..., bool]:
    """LIKE without backtracking: each stretch between two % is found at its first place."""

    def like(pattern: str, text: str, escape: str = "") -> bool:
        if len(escape) > 1 or len(pattern) > MAX_PATTERN:
            raise RefusedCallError
        num_read = len(pattern) if escape else pattern.count("%") + pattern.count("_")
        charge(STEP_COST * (num_read + (0 if text.isascii() else len(text))))
        first, *rest = _stretches(pattern, escape)
        text = _folded(text)
        charge(first.cost)
        if not first.fits(text, 0):
            return False
        if not rest:
            return first.length == len(text)
        at = first.length
        for stretch in rest[:-1]:
            found = stretch.place(text, at, charge)
            if found < 0:
                return False
            at = found + stretch.length
        charge(rest[-1].cost)
        start = len(text) - rest[-1].length
        return start >= at and rest[-1].fits(text, start)

    return like


@lru_cache(maxsize=256)
def _stretches(pattern: str, escape: str) -> tuple[_Stretch, ...]:
    """The stretches of a pattern. Two % in a row are one."""
    parts = _unescaped(pattern, escape) if escape else [p.split("_") for p in pattern.split("%")]
    kept = [*parts[:1], *(part for part in parts[1:-1] if part != [""]), *parts[1:][-1:]]
    return tuple(_stretch(part) for part in kept)


def _unescaped(pattern: str, escape: str) -> list[list[str]]:
    """The literals between two _, of what stands between two %; neither is an escaped one."""
    parts: list[list[str]] = [[""]]
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts[-1][-1] += next(letters, "")
        elif letter == "%":
            parts.append([""])
        elif letter == "_":
            parts[-1].append("")
        else:
            parts[-1][-1] += letter
    return parts


def _stretch(between: Sequence[str]) -> _Stretch:
    literals: list[tuple[int, str]] = []
    at = 0
    for literal in between:
        if literal:
            literals.append((at, _folded(literal)))
        at += len(literal) + 1
    return _Stretch(tuple(literals), at - 1)


def _folded(text: str) -> str:
    """``text`` with small letters for those that LIKE takes for equal: ASCII's alone."""
    return text.lower() if text.isascii() else text.translate(_SMALL)


def _instr(text: str, wanted: str) -> int:
    return text.find(wanted) + 1


def _replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    if len(text) + text.count(old) * (len(new) - len(old)) > MAX_RESULT:
        raise RefusedCallError
    return text.replace(old, new)


def _stripped(strip: Callable[..., str]) -> Callable[..., str]:
    return lambda text, letters=" ": strip(text, letters) if letters else text


class _Dates:
    """The built-in date functions, for arguments that read no clock.

    They run on a connection of their own, which is opened when a query first calls one.
    """

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._plain: sqlite3.Connection | None = None

    def function(self, name: str, least: int) -> Callable[..., Any]:
        """The function ``name``, which reads the clock with fewer than ``least`` arguments."""

        def call(*values: Any) -> Any:
            self._charge(DATE_COST)
            if len(values) < least or len(values) > MAX_DATE_ARGUMENTS:
                raise RefusedCallError
            for value in values:
                if isinstance(value, bytes) or len(str(value)) > MAX_DATE_CHARS:
                    raise RefusedCallError
                if str(value).strip("\0 \t\r\n").lower() in _CLOCK:
                    raise RefusedCallError
            if self._plain is None:
                self._plain = sqlite3.connect(":memory:")
            marks = ",".join("?" * len(values))
            return self._plain.execute(f"SELECT {name}({marks})", values).fetchone()[0]

        return call

    def close(self) -> None:
        """Close the connection, if one was opened."""
        if self._plain is not None:
            self._plain.close()
