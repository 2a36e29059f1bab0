"""Hostile queries: none writes, reads a clock or a file, or works for longer than its budget."""

import hashlib
import sqlite3
import time
from pathlib import Path

import pytest

from troupe_tasks.sql.guard import Budget, Refusal, run_query
from troupe_tasks.sql.tokens import MAX_EXPANSION, expansion

CPU_S = 0.2
GROWING = (
    "WITH RECURSIVE r(s, n) AS (SELECT 'a', 1 UNION ALL SELECT s || 'aaaaaaaaaaaaaaaa', n + 1 "
    "FROM r WHERE n < 100)"
)
ENDLESS = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r"

ATTACKS: dict[str, tuple[str, Refusal | None]] = {
    "drop": ("DROP TABLE t", "not_a_select"),
    "insert": ("INSERT INTO t VALUES(9)", "not_a_select"),
    "insert_behind_with": ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "not_allowed"),
    "two_statements": ("SELECT 1; DROP TABLE t", "not_a_select"),
    "attach": ("ATTACH 'x.db' AS x", "not_a_select"),
    "vacuum_into": ("VACUUM INTO 'stolen.db'", "not_a_select"),
    "pragma": ("PRAGMA table_info(t)", "not_a_select"),
    "pragma_function": ("SELECT * FROM pragma_table_info('t')", "not_allowed"),
    "load_extension": ("SELECT load_extension('x')", "not_allowed"),
    "readfile": ("SELECT readfile('/etc/passwd')", "not_allowed"),
    "random": ("SELECT random()", "not_allowed"),
    "now": ("SELECT date('now')", "not_allowed"),
    "now_in_data": ("SELECT date(w) FROM words WHERE w = 'now'", "not_allowed"),
    "now_by_default": ("SELECT strftime('%Y')", "not_allowed"),
    "time_zone": ("SELECT datetime('2024-01-01', 'localtime')", "not_allowed"),
    "current": ("SELECT current_timestamp", "not_allowed"),
    "endless_recursion": (f"{ENDLESS}) SELECT count(*) FROM r", "budget"),
    "cross_join": ("SELECT count(*) FROM t a, t b, t c, t d, t e, t f, t g", "budget"),
    "zeroblob": ("SELECT length(zeroblob(1000000000))", "not_allowed"),
    "hex": ("SELECT length(hex(zeroblob(900000)))", "not_allowed"),
    "printf": ("SELECT length(printf('%.*c', 900000000, 'x'))", "not_allowed"),
    "group_concat": (f"{ENDLESS} LIMIT 99999) SELECT group_concat('xxxxxxxx') FROM r", "budget"),
    "like": (
        f"{GROWING} SELECT count(*) FROM r, t WHERE r.s || t.i LIKE '%a%a%a%a%a%a%a%a%a%b'",
        "budget",
    ),
    "instr": (f"{GROWING} SELECT count(*) FROM r, r q WHERE instr(r.s, q.s || 'b')", "budget"),
    "trim": (f"{GROWING} SELECT count(*) FROM r, r q WHERE trim(r.s, q.s) = 'b'", "budget"),
    "replace": (f"{GROWING} SELECT max(replace(s, 'a', s)) FROM r", "not_allowed"),
    "sort": (f"{ENDLESS} LIMIT 3000000) SELECT i FROM r ORDER BY -i LIMIT 1", "budget"),
    "memory": (
        "WITH RECURSIVE r(s) AS (SELECT 'a' UNION ALL SELECT substr(s || 'aaaaaaaaaaaaaaaaaaaa', "
        "1, 1900) FROM r) SELECT s FROM r ORDER BY s LIMIT 1",
        "budget",
    ),
    "many_rows": ("SELECT a.i FROM t a, t b", "too_many_rows"),
    "schema": ("SELECT sql FROM sqlite_master", "not_allowed"),
    "depth": ("SELECT " + "(" * 900 + "1" + ")" * 900, "too_deep"),
    "json": ("SELECT json_each.value FROM json_each('[1]')", "failed"),
    "nul": ("SELECT 1\0", "not_a_select"),
    "fine": ("SELECT i, count(*) FROM t GROUP BY i ORDER BY 1", None),
}


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
    assert time.process_time() - begun < 2 * CPU_S
    assert [result.refusal for result in results] == [refusal] * 2
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def nested(depth: int, uses: int) -> str:
    sql = "SELECT i AS x FROM t"
    for _ in range(depth):
        sql = f"SELECT {'+'.join(['x'] * uses)} AS x FROM ({sql})"
    return sql


def doubled_tables(depth: int) -> str:
    tables = [f"a{n + 1} AS (SELECT p.i FROM a{n} p, a{n} q)" for n in range(depth)]
    return f"WITH a0 AS (SELECT i FROM t LIMIT 1), {', '.join(tables)} SELECT * FROM a{depth}"


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
