"""Hostile queries: none writes, reads a clock or a file, or works for longer than its budget."""

import hashlib
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest
from sql_attacks import ATTACKS, ENDLESS, doubled_tables, nested

from troupe.errors import OverloadedError
from troupe_tasks.sql import guard, heap
from troupe_tasks.sql.guard import FILE_BUDGET, Budget, Database, Result, run_query
from troupe_tasks.sql.tokens import MAX_EXPANSION, expansion

CPU_S = 0.2


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t(i)")
    connection.executemany("INSERT INTO t VALUES(?)", [(i,) for i in range(200)])
    connection.execute("CREATE TABLE words(w)")
    connection.execute("INSERT INTO words VALUES('now')")
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_when_run_then_is_refused_in_time_and_changes_nothing(name: str, file: Path) -> None:
    sql, refusal = ATTACKS[name]
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    begun = time.process_time()
    results = [run_query(database, sql, Budget()) for database in (file, file.read_bytes())]
    assert time.process_time() - begun < 5.0
    assert [result.refusal for result in results] == [refusal] * 2
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "sql", [nested(16, 2), nested(4, 30), doubled_tables(24), doubled_tables(40)]
)
def test_query_when_it_doubles_at_each_level_then_is_refused_before_it_is_compiled(
    sql: str, file: Path
) -> None:
    begun = time.process_time()
    assert run_query(file, sql).refusal == "too_deep"
    assert time.process_time() - begun < CPU_S


@pytest.mark.parametrize("quote", ["{}", '"{}"', "[{}]", "`{}`", "'{}'"])
def test_expansion_when_names_are_quoted_then_counts_them_alike(quote: str) -> None:
    plain = expansion(nested(3, 4))
    assert expansion(nested(3, 4).replace("x", quote.format("x"))) >= plain > 2**6


def test_expansion_of_an_ordinary_query_then_is_far_below_the_limit() -> None:
    sql = (
        "WITH big AS (SELECT a.id, SUM(b.n) AS s FROM a JOIN b ON b.a_id = a.id GROUP BY a.id) "
        "SELECT a.name FROM a JOIN big ON big.id = a.id WHERE big.s > (SELECT AVG(s) FROM big)"
    )
    assert expansion(sql) < MAX_EXPANSION / 100


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("'Apple' LIKE 'a%e'", 1),
        ("'apple' LIKE 'a_p%'", 1),
        ("'apple' LIKE '%p'", 0),
        ("'a' LIKE 'a%a'", 0),
        ("'50%' LIKE '50\\%' ESCAPE '\\'", 1),
        ("'50x' LIKE '50\\%' ESCAPE '\\'", 0),
        ("NULL LIKE 'a'", None),
        ("12 LIKE '1%'", 1),
        ("instr('hello', 'l')", 3),
        ("replace('aXbX', 'X', '-')", "a-b-"),
        ("trim('  a ')", "a"),
        ("rtrim('abcc', 'c')", "ab"),
        ("date('2024-01-31', '+1 month')", "2024-03-02"),
        ("strftime('%m', '2024-05-06')", "05"),
        ("julianday('2024-01-01')", 2460310.5),
        ("date('nonsense')", None),
    ],
)
def test_replaced_function_when_called_then_says_what_sqlite_says(call: str, value: object) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t(i)")
    data = connection.serialize()
    plain = connection.execute(f"SELECT {call}").fetchone()
    connection.close()
    assert run_query(data, f"SELECT {call}").rows == (plain,) == ((value,),)


def test_refusal_when_sqlite_complains_then_its_words_stay_inside(file: Path) -> None:
    result = run_query(file, "SELECT secret_name_of_a_column FROM t")
    assert result.refusal == "unknown_column"
    assert "secret" not in repr(result)


def test_query_when_run_twice_then_spends_the_same_budget(file: Path) -> None:
    sql = f"{ENDLESS} LIMIT 20000) SELECT sum(i) FROM r"
    edge = next(n for n in range(1, 900) if run_query(file, sql, Budget(n * 1000)).refusal is None)
    for _ in range(3):
        assert run_query(file, sql, Budget((edge - 1) * 1000)).refusal == "budget"
        assert run_query(file, sql, Budget(edge * 1000)).refusal is None


LONG = (
    "WITH RECURSIVE d(n, s) AS (SELECT 0, 'x' UNION ALL SELECT n + 1, s || s FROM d WHERE n < 17),"
    " r(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 200000) "
)
MEASURED = """
import re, resource, sys
from pathlib import Path
from troupe_tasks.sql.guard import FILE_BUDGET, run_query
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
result = run_query(Path(sys.argv[1]), sys.argv[2], FILE_BUDGET)
peak_kib = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(result.refusal, int(peak_kib) >> 10)
"""
# Not ru_maxrss, which begins with what the process that started this one had.
MAX_MIB = 450


@pytest.mark.parametrize(
    "select",
    [
        "SELECT s || k FROM r, d, words WHERE n = 17",
        "SELECT count(*) FROM (SELECT s || k AS z FROM r, d WHERE n = 17 ORDER BY z LIMIT 100000)",
        "SELECT count(*) FROM (SELECT DISTINCT s || k FROM r, d WHERE n = 17)",
        "SELECT " + ", ".join(["s"] * 300) + " FROM r, d WHERE n = 17",
    ],
    ids=["rows", "sorter", "distinct", "columns"],
)
def test_query_of_a_file_when_it_keeps_gigabytes_then_is_refused_in_bounded_memory(
    select: str, file: Path
) -> None:
    asked = [sys.executable, "-c", MEASURED, str(file), LONG + select]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    refusal, mib = done.stdout.split()
    assert (refusal, int(mib) < MAX_MIB) == ("budget", True), done.stdout


def test_query_of_a_file_when_it_sorts_much_then_has_its_rows(file: Path) -> None:
    sql = (
        "SELECT a.i FROM t a, t b, t c WHERE c.i < 5 GROUP BY a.i, b.i, c.i "
        "ORDER BY count(*), a.i DESC LIMIT 2"
    )
    assert run_query(file, sql, FILE_BUDGET).rows == ((199,), (199,))


def test_query_when_its_rows_are_many_bytes_then_is_refused(file: Path) -> None:
    sql = "SELECT w || w FROM words, t"
    fits = 200 * (2 * 64 + 6)
    assert run_query(file, sql, Budget(rows_bytes=fits)).refusal is None
    assert run_query(file, sql, Budget(rows_bytes=fits - 1)).refusal == "budget"


def test_like_when_its_pattern_is_long_then_is_refused(file: Path) -> None:
    sql = LONG.replace("17", "11") + "SELECT i LIKE s FROM t, d WHERE n = {} LIMIT 1"
    assert run_query(file, sql.format(10), FILE_BUDGET).rows == ((0,),)
    assert run_query(file, sql.format(11), FILE_BUDGET).refusal == "not_allowed"


def test_query_when_others_left_it_no_memory_then_runs_again_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, begun, goes_on = heap.Turns(), Event(), Event()
    monkeypatch.setattr(guard, "_turns", turns)
    beside: list[str] = []
    runs: list[list[str]] = []

    def other() -> None:
        with turns.beside():
            beside.append("another")
            begun.set()
            goes_on.wait(30)
            beside.clear()

    real = guard.run_once

    def short_of_memory(database: Database, sql: str, budget: Budget) -> Result:
        runs.append([*beside])
        goes_on.set()
        if len(runs) == 1:
            raise MemoryError
        return real(database, sql, budget)

    monkeypatch.setattr(guard, "run_once", short_of_memory)
    thread = Thread(target=other)
    thread.start()
    assert begun.wait(30)
    assert run_query(file, "SELECT count(*) FROM t").rows == ((200,),)
    thread.join()
    assert runs == [["another"], []]


def test_query_when_another_does_not_end_then_says_that_it_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap, "WAIT_S", 0.01)
    turns = heap.Turns()
    with turns.beside(), pytest.raises(OverloadedError, match="try again"), turns.alone():
        pass
    with turns.alone(), pytest.raises(OverloadedError), turns.beside():
        pass
    with turns.beside(), turns.beside():
        pass


def test_query_when_many_are_to_be_alone_then_others_go_between_them() -> None:
    turns, order = heap.Turns(), list[str]()

    def run(kind: str) -> None:
        with turns.beside() if kind == "beside" else turns.alone():
            order.append(kind)

    threads = [Thread(target=run, args=(kind,)) for kind in ("alone", "beside")]
    with turns.alone():
        for thread in threads:
            thread.start()
        with turns._changed:
            while not (turns._num_held and turns._num_waiting):
                turns._changed.wait(0.01)
    for thread in threads:
        thread.join(30)
    assert order == ["beside", "alone"]
