"""Draws the contents of one database, with the rows on which wrong queries differ from right ones.

Besides chance: values at, just below and just above each constant of the gold query, names and
whole rows that occur twice, unknown values, rows without links, and ties at the top.
"""

import sqlite3
from collections.abc import Sequence
from random import Random

from troupe_tasks.sql.domains import PEOPLE, Domain
from troupe_tasks.sql.forms import Forms
from troupe_tasks.sql.questions import Question

UNKNOWN_SHARES = (0.05, 0.1, 0.25)
EDGE_SHARE = 0.45
TWIN_SHARE = 0.25
_SIZES = ((9, 7, 22), (12, 8, 34), (7, 6, 14), (14, 8, 46))

Value = int | str | None


def schema_of(domain: Domain) -> str:
    """The CREATE TABLE statements, one a line."""
    d = domain
    return (
        f"CREATE TABLE {d.a}(id INTEGER PRIMARY KEY, {d.a_name} TEXT, {d.a_group} TEXT, "
        f"{d.a_number} INTEGER);\n"
        f"CREATE TABLE {d.b}(id INTEGER PRIMARY KEY, {d.b_name} TEXT, {d.b_kind} TEXT, "
        f"{d.b_number} INTEGER);\n"
        f"CREATE TABLE {d.link}(id INTEGER PRIMARY KEY, {d.a_ref} INTEGER REFERENCES {d.a}, "
        f"{d.b_ref} INTEGER REFERENCES {d.b}, {d.quantity} INTEGER, {d.day} TEXT);"
    )


def drawn_database(domain: Domain, forms: Forms, question: Question, rng: Random) -> bytes:
    """One serialised SQLite database, some kilobytes."""
    d = domain
    edges = {(table, column): constant for table, column, constant in question.edges}
    sizes = rng.choice(_SIZES)
    groups = _some(rng, [forms.of_group(d, word) for word in d.groups], question.stored)
    kinds = _some(rng, [forms.of_kind(d, word) for word in d.kinds], question.stored)
    a_rows = _people(rng, sizes[0], groups, edges.get((d.a, d.a_number)), PEOPLE, (18, 60))
    b_rows = _people(rng, sizes[1], kinds, edges.get((d.b, d.b_number)), d.b_names, (1, 40))
    rng.choice((_tie_at_the_top, _one_at_the_mean, _tie_at_the_top))(rng, b_rows)
    links = _links(rng, sizes, forms, edges.get((d.link, d.quantity)))
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("PRAGMA page_size=512")
        connection.executescript(schema_of(d))
        for table, rows in ((d.a, a_rows), (d.b, b_rows), (d.link, links)):
            marks = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES({marks})", rows)
        connection.commit()
        return connection.serialize()
    finally:
        connection.close()


def _some(rng: Random, words: list[str], needed: Sequence[str]) -> list[str]:
    """Two to five of the words; those that the question names are mostly among them."""
    chosen = rng.sample(words, rng.randint(2, min(5, len(words))))
    wanted = [word for word in needed if word in words]
    if wanted and rng.random() < 0.9:
        chosen += wanted * 2
    return chosen


def _people(
    rng: Random, count: int, words: list[str], edge: int | None, names: Sequence[str],
    span: tuple[int, int],
) -> list[list[Value]]:  # fmt: skip
    rows: list[list[Value]] = []
    pool = rng.sample(names, min(len(names), max(3, count - 3)))
    unknown = rng.choice(UNKNOWN_SHARES)
    for number in range(1, count + 1):
        value: Value = rng.randint(*span)
        if edge is not None and rng.random() < EDGE_SHARE:
            value = edge + rng.choice((-1, 0, 1))
        if rng.random() < unknown:
            value = None
        word = None if rng.random() < unknown else rng.choice(words)
        row: list[Value] = [number, rng.choice(pool), word, value]
        if rows and rng.random() < TWIN_SHARE:
            row[1:] = rng.choice(rows)[1:]
        rows.append(row)
    return rows


def _tie_at_the_top(rng: Random, rows: list[list[Value]]) -> None:
    top = max((value for *_, value in rows if isinstance(value, int)), default=1)
    rng.choice(rows)[3] = top


def _one_at_the_mean(rng: Random, rows: list[list[Value]]) -> None:
    """One value is the mean of all known values exactly."""
    known = [row for row in rows if isinstance(row[3], int)]
    if len(known) < 3:
        return
    values = [int(str(row[3])) for row in known]
    mean = sum(values[2:]) // max(1, len(values[2:]))
    known[0][3] = mean
    known[1][3] = mean * len(known) - mean - sum(values[2:])


def _links(
    rng: Random, sizes: tuple[int, int, int], forms: Forms, edge: int | None
) -> list[list[Value]]:
    """Links between some of the rows: others have none, and their ids are no one's ids."""
    people = rng.sample(range(1, sizes[0] + 1), max(3, round(sizes[0] * rng.uniform(0.5, 0.9))))
    things = rng.sample(range(1, sizes[1] + 1), max(3, round(sizes[1] * rng.uniform(0.5, 0.9))))
    months = rng.sample(range(1, 13), 5)
    rows: list[list[Value]] = []
    for number in range(1, sizes[2] + 1):
        quantity = rng.randint(1, 5)
        if edge is not None and rng.random() < EDGE_SHARE:
            quantity = edge + rng.choice((-1, 0, 1))
        month = rng.choice(months) if rng.random() < 0.6 else rng.randint(1, 12)
        day = forms.of_day(month, rng.randint(1, 28))
        rows.append([number + 3, rng.choice(people), rng.choice(things), quantity, day])
    return rows
