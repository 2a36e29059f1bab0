"""Runs one untrusted query: it reads, within a budget that counts operations and no seconds.

Owns what a query may do. A query sees tables and a list of pure functions; it can write nothing,
open nothing, ask for no clock and no chance. Its budget is deterministic: operations of SQLite's
virtual machine, a charge for each call of a replaced function (functions.py), the length of a value
and of a row, the number and the size of the rows, what SQLite keeps meanwhile (heap.py), and a
bound on what the compiler copies (tokens.py). So equal queries end alike on every machine.

SQLite's own messages never leave this module.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from troupe_tasks.sql.functions import REPLACED, installed
from troupe_tasks.sql.heap import Turns, limit_heap
from troupe_tasks.sql.tokens import MAX_EXPANSION, expansion, first_word

Refusal = Literal[
    "no_query",
    "not_a_select",
    "too_long",
    "too_deep",
    "syntax",
    "unknown_table",
    "unknown_column",
    "not_allowed",
    "budget",
    "too_many_rows",
    "failed",
]
"""Why a query has no rows: the whole of what an agent may be told."""

Cell = None | int | float | str | bytes
Database = bytes | Path
"""A serialised database, or a file."""

_PURE = (
    "abs avg ceil ceiling coalesce count floor group_concat ifnull iif length lower max min mod "
    "nullif pow power round row_number rank dense_rank percent_rank cume_dist lag lead first_value "
    "last_value nth_value ntile sign sqrt substr substring sum total typeof unicode upper "
    "exp ln log log10 log2"
)
FUNCTIONS = REPLACED | frozenset(_PURE.split())
_ACTIONS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_FUNCTION,
}
_BUILT_IN = ("sqlite_", "pragma_", "json_", "fts", "rtree", "dbstat", "bytecode", "tables_used")
"""Tables that SQLite brings; the functions behind them are not metered."""
_TICK = 1_000
_CELL_BYTES = 64
"""About what Python keeps for a cell beside its text."""
_turns = Turns()


@dataclass(frozen=True, slots=True)
class Budget:
    """What one query may use; lengths in bytes. ``rows_bytes`` is of all rows together."""

    operations: int = 400_000
    length: int = 2_000
    sql_chars: int = 4_000
    max_rows: int = 1_000
    rows_bytes: int = 8_000_000
    columns: int = 64


FILE_BUDGET = Budget(
    operations=200_000_000, length=200_000, max_rows=20_000, rows_bytes=32_000_000, columns=500
)
"""For published databases, whose tables have up to millions of rows."""


@dataclass(frozen=True, slots=True)
class Result:
    """Rows of a query, or why there are none, with the tables that it reads (lower case)."""

    rows: tuple[tuple[Cell, ...], ...] = ()
    columns: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    refusal: Refusal | None = None


class _Meter:
    """Counts down a query's operations."""

    def __init__(self, operations: int) -> None:
        self._left = operations
        self.is_spent = False

    def tick(self) -> bool:
        self.charge(_TICK, is_callback=True)
        return self.is_spent

    def charge(self, operations: int, *, is_callback: bool = False) -> None:
        self._left -= operations
        self.is_spent = self.is_spent or self._left < 0
        if self.is_spent and not is_callback:
            raise ValueError("the budget is spent")


def run_query(database: Database, sql: str, budget: Budget | None = None) -> Result:
    """The rows of ``sql`` on ``database``; never raises for what ``sql`` says.

    Example: ``run_query(data, "SELECT name FROM pet").rows == (("Rex",),)``.
    """
    budget = budget or Budget()
    refusal = refused_unread(sql, budget)
    if refusal:
        return Result(refusal=refusal)
    with _turns.beside(), suppress(MemoryError, sqlite3.Error):
        return run_once(database, sql, budget)
    with _turns.alone():
        try:
            return run_once(database, sql, budget)
        except MemoryError:
            return Result(refusal="budget")


def run_once(database: Database, sql: str, budget: Budget) -> Result:
    """As ``run_query``, but raises MemoryError, and sqlite3.Error for what is no database."""
    meter, reads = _Meter(budget.operations), set[str]()
    with _opened(database) as connection, installed(connection, meter.charge):
        _limit(connection, budget)
        connection.set_authorizer(_authorizer(reads))
        connection.set_progress_handler(meter.tick, _TICK)
        try:
            cursor = connection.execute(sql)
            rows = _fetched(cursor, budget)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            return Result(refusal=_refusal_of(str(error), meter))
    if isinstance(rows, str):
        return Result(refusal=rows)
    columns = tuple(str(part[0]) for part in cursor.description or ())
    return Result(rows, columns, frozenset(reads))


def _fetched(cursor: sqlite3.Cursor, budget: Budget) -> tuple[tuple[Cell, ...], ...] | Refusal:
    """All rows, of which no more are read than may be kept."""
    rows: list[tuple[Cell, ...]] = []
    left_bytes = budget.rows_bytes
    for row in cursor:
        if len(rows) == budget.max_rows:
            return "too_many_rows"
        left_bytes -= _CELL_BYTES * (1 + len(row))
        left_bytes -= sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if left_bytes < 0:
            return "budget"
        rows.append(row)
    return tuple(rows)


def refused_unread(sql: str, budget: Budget) -> Refusal | None:
    """What can be said of ``sql`` without a database."""
    if not sql.strip():
        return "no_query"
    if len(sql.encode("utf-8", "replace")) > budget.sql_chars:
        return "too_long"
    if "\0" in sql or first_word(sql) not in ("select", "with"):
        return "not_a_select"
    return "too_deep" if expansion(sql) > MAX_EXPANSION else None


@contextmanager
def _opened(database: Database) -> Generator[sqlite3.Connection]:
    if isinstance(database, bytes):
        connection = sqlite3.connect(":memory:", cached_statements=0, isolation_level=None)
        connection.deserialize(database)
    else:
        uri = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, cached_statements=0, isolation_level=None)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        limit_heap(connection)
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("SELECT count(*) FROM sqlite_master")  # reads the schema before limits
        yield connection
    finally:
        connection.close()


def _limit(connection: sqlite3.Connection, budget: Budget) -> None:
    for category, limit in (
        (sqlite3.SQLITE_LIMIT_LENGTH, budget.length),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, budget.sql_chars),
        (sqlite3.SQLITE_LIMIT_COLUMN, budget.columns),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 60),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 10),
        (sqlite3.SQLITE_LIMIT_VDBE_OP, 50_000),
        (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 8),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 0),
        (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        connection.setlimit(category, limit)


def _authorizer(reads: set[str]) -> Any:
    def authorize(
        action: int, first: str | None, second: str | None, schema: str | None, trigger: str | None
    ) -> int:
        if action not in _ACTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in FUNCTIONS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ:
            table = (first or "").lower()
            if table.startswith(_BUILT_IN):
                return sqlite3.SQLITE_DENY
            reads.add(table)
        return sqlite3.SQLITE_OK

    return authorize


_MESSAGES: tuple[tuple[str, Refusal], ...] = (
    ("no such table", "unknown_table"),
    ("no such column", "unknown_column"),
    ("ambiguous column", "unknown_column"),
    ("no such function", "not_allowed"),
    ("not authorized", "not_allowed"),
    ("prohibited", "not_allowed"),
    ("user-defined function", "not_allowed"),
    ("one statement at a time", "not_a_select"),
    ("syntax error", "syntax"),
    ("incomplete input", "syntax"),
    ("unrecognized token", "syntax"),
    ("interrupted", "budget"),
    ("too big", "budget"),
    ("too large", "budget"),
    ("too many", "too_deep"),
    ("parser stack", "too_deep"),
)


def _refusal_of(message: str, meter: _Meter) -> Refusal:
    if meter.is_spent:
        return "budget"
    for part, refusal in _MESSAGES:
        if part in message:
            return refusal
    return "failed"
