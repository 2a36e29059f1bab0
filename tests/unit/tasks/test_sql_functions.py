"""What the replaced functions of SQL charge, and that they say what SQLite's say."""

import sqlite3
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from random import Random
from typing import Any

import pytest

from troupe_tasks.sql.functions import installed

ROWS = 40


@pytest.fixture
def table() -> Generator[sqlite3.Connection]:
    """``ROWS`` rows, whose numbers make a pattern or a date that no row before had."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t(i INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(ROWS)])
        yield connection


@pytest.mark.parametrize("clock", ["now", "subsec", "SubSecond "])
@pytest.mark.parametrize("start", ["date(", "time(", "datetime(", "julianday(", "strftime('%s', "])
def test_date_function_when_it_would_read_the_clock_then_is_refused(clock: str, start: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, installed(connection, lambda _: None):
        assert connection.execute(f"SELECT {start}'2024-03-17')").fetchone()[0] is not None
        with pytest.raises(sqlite3.OperationalError):
            connection.execute(f"SELECT {start}'{clock}')").fetchone()


def calls_in(work: Callable[[], object]) -> list[str]:
    """The functions that ``work`` calls in this thread, Python's and C's."""
    called: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call":
            called.append(argument.__name__)
        elif event == "call":
            called.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return called


@pytest.mark.parametrize(
    "call",
    [
        "'' LIKE i || '" + "%" * 900 + "'",
        "'' LIKE i || '" + "_%" * 450 + "'",
        "'" + "a" * 300 + "' LIKE '%a_" + "a_" * 40 + "b_%' || i",
        "'" + "a" * 300 + "' LIKE i || '" + "\\%" * 300 + "' ESCAPE '\\'",
        "'" + "ab" * 200 + "' LIKE '%" + "a_%b" * 50 + "%' || i",
        "instr(i || 'aaaaaaaa', 'b')",
        "replace(i || 'aaaaaaaa', 'a', 'b')",
        "trim(i || 'aaaaaaaa', 'a')",
        "date('2020-01-01', i || ' days')",
        "strftime('%Y %j %f', '2020-01-01', i || ' days', 'start of month', 'weekday 3')",
    ],
)
def test_function_when_called_for_many_rows_then_pays_for_all_that_it_calls(
    call: str, table: sqlite3.Connection
) -> None:
    paid: list[int] = []
    with installed(table, paid.append):
        called = calls_in(lambda: table.execute(f"SELECT {call} FROM t").fetchall())
    assert len(called) * 2 < sum(paid)
    assert called.count("connect") <= 1


def test_like_when_patterns_are_drawn_then_says_what_sqlite_says(table: sqlite3.Connection) -> None:
    rng = Random(0)
    signs = "ab_%%AéB\\"
    with closing(sqlite3.connect(":memory:")) as plain, installed(table, lambda _: None):
        for _ in range(2_000):
            text, pattern = (
                "".join(rng.choices(signs, k=rng.randint(0, 7))).rstrip("\\") for _ in range(2)
            )
            for escape in ("", " ESCAPE '\\'"):
                sql = f"SELECT ? LIKE ?{escape}"
                asked = (text, pattern)
                right = plain.execute(sql, asked).fetchone()
                assert table.execute(sql, asked).fetchone() == right, (asked, escape)
