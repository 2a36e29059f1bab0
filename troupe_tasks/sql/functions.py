"""Functions of SQL whose built-in forms are unbounded or impure, replaced by metered ones.

A progress handler counts operations and sees nothing inside one function call: ``x LIKE '%a%a%b'``
is one operation of exponential time, ``instr`` of quadratic time. ``date('now')`` reads a clock.
Here each call pays for its length out of the query's budget, and the clock is refused.
"""

import re
import sqlite3
from collections.abc import Callable
from typing import Any

CALL_COST = 20
"""Operations that a call costs besides its length."""
DATE_COST = 1_000
MAX_RESULT = 2_000
"""Characters of a result."""
MAX_PATTERN = 2_000
"""Characters of a LIKE pattern, which is compiled and kept."""
MAX_DATE_ARGUMENTS, MAX_DATE_CHARS = 6, 60

Charge = Callable[[int], None]
"""Takes operations from the query's budget; raises when it is spent."""

_DATES = {"date": 1, "time": 1, "datetime": 1, "julianday": 1, "strftime": 2}
"""Date functions and the number of arguments below which they read the clock."""
_CLOCK = {"now", "localtime", "utc"}

REPLACED = frozenset({"like", "instr", "replace", "trim", "ltrim", "rtrim", *_DATES})


class RefusedCallError(Exception):
    """A call that a pure query may not make."""


def install(connection: sqlite3.Connection, charge: Charge) -> None:
    """Replace the functions of ``REPLACED`` in ``connection``."""
    text = _metered(charge)
    for arity in (2, 3):
        connection.create_function("like", arity, text(_like), deterministic=True)
    connection.create_function("instr", 2, text(_instr), deterministic=True)
    connection.create_function("replace", 3, text(_replace), deterministic=True)
    for name, strip in (("trim", str.strip), ("ltrim", str.lstrip), ("rtrim", str.rstrip)):
        for arity in (1, 2):
            connection.create_function(name, arity, text(_stripped(strip)), deterministic=True)
    for name, least in _DATES.items():
        function = _date_function(name, least, charge)
        connection.create_function(name, -1, function, deterministic=True)


def _metered(charge: Charge) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            texts = [_text(value) for value in values]
            lengths = [len(text) for text in texts if text is not None]
            charge(
                CALL_COST + sum(lengths) + max(lengths, default=0) * min(lengths, default=0) // 8
            )
            return None if None in texts else function(*texts)

        return call

    return wrap


def _text(value: Any) -> str | None:
    """What SQLite makes of a value that is used as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return repr(value) if isinstance(value, float) else str(value)


def _like(pattern: str, text: str, escape: str = "") -> bool:
    """LIKE without backtracking: each part between two % is found at its first place."""
    (first, length), *rest = _parts(pattern, escape)
    if first.match(text) is None:
        return False
    if not rest:
        return length == len(text)
    at = length
    for part, _ in rest[:-1]:
        found = part.search(text, at)
        if found is None:
            return False
        at = found.end()
    last, length = rest[-1]
    start = len(text) - length
    return start >= at and last.match(text, start) is not None


def _parts(pattern: str, escape: str) -> list[tuple["re.Pattern[str]", int]]:
    """The stretches between two %, each as an expression of fixed length, and its length."""
    if len(escape) > 1 or len(pattern) > MAX_PATTERN:
        raise RefusedCallError
    stretches: list[list[str]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            stretches[-1].append(re.escape(next(letters, "")))
        elif letter == "%":
            stretches.append([])
        else:
            stretches[-1].append("." if letter == "_" else re.escape(letter))
    flags = re.IGNORECASE | re.ASCII | re.DOTALL
    return [(re.compile("".join(s), flags), len(s)) for s in stretches]


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


def _date_function(name: str, least: int, charge: Charge) -> Callable[..., Any]:
    """The built-in function on a connection of its own, for arguments that read no clock."""

    def call(*values: Any) -> Any:
        charge(DATE_COST)
        if len(values) < least or len(values) > MAX_DATE_ARGUMENTS:
            raise RefusedCallError
        for value in values:
            if isinstance(value, bytes) or len(str(value)) > MAX_DATE_CHARS:
                raise RefusedCallError
            if str(value).strip("\0 \t\r\n").lower() in _CLOCK:
                raise RefusedCallError
        marks = ",".join("?" * len(values))
        plain = sqlite3.connect(":memory:")
        try:
            return plain.execute(f"SELECT {name}({marks})", values).fetchone()[0]
        finally:
            plain.close()

    return call
