"""Chooses the databases of an instance: one shown, five hidden, that tell wrong queries apart.

Random databases pay for many wrong queries: 15 of 100 are equal to the right one on eight of them.
So candidates are drawn until every listed wrong query differs on one of them, and those are kept
that tell most apart. A wrong query that differs on none of all candidates counts as right in other
words.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from troupe_tasks.sql.compare import is_equal, is_ordered
from troupe_tasks.sql.contents import drawn_database, schema_of
from troupe_tasks.sql.domains import DOMAINS, Domain
from troupe_tasks.sql.forms import Forms, drawn_forms
from troupe_tasks.sql.guard import Cell, Database, Result, run_query
from troupe_tasks.sql.mutants import mutants
from troupe_tasks.sql.questions import TEMPLATES, Question

NUM_HIDDEN = 5
NUM_CANDIDATES = 16
"""Databases drawn for an instance before six are chosen."""
MAX_DRAWN = 400
"""Databases drawn at most: those whose gold result a guess would say are left out."""
MAX_KEPT = 128
"""Instances that a process keeps; each is about 60 KB."""

TRUSTED_OPERATIONS = 400_000

Rows = tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """One database and the gold query's rows on it."""

    database: Database
    rows: Rows


@dataclass(frozen=True, slots=True)
class Instance:
    """What a task's payload stands for."""

    text: str
    schema: str
    gold: str
    stored: tuple[str, ...]
    tables: frozenset[str]
    witnesses: tuple[Witness, ...]
    """The shown database first."""
    is_file: bool = False
    short: str = ""
    """The question in few words; none for a published one."""

    @property
    def shown(self) -> Witness:
        """The database that the explorer reads."""
        return self.witnesses[0]

    def agreeing(self, results: Iterable[Result]) -> int:
        """On how many witnesses, of those that have a result, the result equals gold's."""
        ordered = is_ordered(self.gold)
        pairs = zip(self.witnesses, results, strict=False)
        return sum(
            result.refusal is None and is_equal(witness.rows, result.rows, is_ordered=ordered)
            for witness, result in pairs
        )


def drawn_question(domain: str, template: str, seed: int) -> tuple[Domain, Forms, Question]:
    """The question that ``seed`` stands for."""
    rng = Random(f"sql/{domain}/{template}/{seed}")
    found = DOMAINS[domain]
    forms = drawn_forms(rng)
    return found, forms, TEMPLATES[template](found, forms, rng)


@lru_cache(maxsize=MAX_KEPT)
def instance(domain: str, template: str, seed: int) -> Instance:
    """The instance that ``seed`` stands for: about 30 ms when it is new."""
    found, forms, question = drawn_question(domain, template, seed)
    candidates: list[Witness] = []
    for number in range(MAX_DRAWN):
        rng = Random(f"sql/{domain}/{template}/{seed}/{number}")
        database = drawn_database(found, forms, question, rng)
        rows = run_query(database, question.gold).rows
        if _is_telling(rows):
            candidates.append(Witness(database, rows))
        if len(candidates) == NUM_CANDIDATES:
            break
    else:
        raise RuntimeError(f"{domain}/{template}/{seed}: too few databases with a telling result")
    wrong = wrong_queries(found, forms, question)
    chosen = _chosen(candidates, wrong, ordered=is_ordered(question.gold))
    return Instance(
        question.text,
        schema_of(found),
        question.gold,
        question.stored,
        question.tables,
        tuple(candidates[at] for at in chosen),
        short=question.short,
    )


def wrong_queries(domain: Domain, forms: Forms, question: Question) -> list[str]:
    """The template's own wrong queries, and the mutants of the gold query."""
    groups = [forms.of_group(domain, word) for word in domain.groups]
    kinds = [forms.of_kind(domain, word) for word in domain.kinds]
    return [*question.wrong, *mutants(question.gold, columns_of(domain), [*groups, *kinds])]


def columns_of(domain: Domain) -> Mapping[str, Sequence[str]]:
    """The columns of each table."""
    d = domain
    return {
        d.a: ("id", d.a_name, d.a_group, d.a_number),
        d.b: ("id", d.b_name, d.b_kind, d.b_number),
        d.link: ("id", d.a_ref, d.b_ref, d.quantity, d.day),
    }


def _is_telling(rows: Rows) -> bool:
    """Neither empty, nor one cell, nor all there could be: what a guess would say."""
    return len(rows) > 1 or (len(rows) == 1 and len(rows[0]) > 1)


def _chosen(candidates: Sequence[Witness], wrong: Sequence[str], *, ordered: bool) -> list[int]:
    """The shown candidate, the first, and those that tell most of the rest apart."""
    told = [set(told_apart(candidate, wrong, ordered=ordered)) for candidate in candidates]
    chosen, known = [0], set(told[0])
    while len(chosen) < 1 + NUM_HIDDEN:
        rest = [at for at in range(len(candidates)) if at not in chosen]
        best = max(rest, key=lambda at: (len(told[at] - known), len(told[at]), -at))
        chosen.append(best)
        known |= told[best]
    return chosen


def told_apart(witness: Witness, wrong: Sequence[str], *, ordered: bool) -> list[int]:
    """Which of the ``wrong`` queries, written here and so trusted, differ on the database."""
    assert isinstance(witness.database, bytes)
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(witness.database)
        connection.set_progress_handler(lambda: 1, TRUSTED_OPERATIONS)
        return [
            at
            for at, sql in enumerate(wrong)
            if not is_equal(witness.rows, _rows(connection, sql), is_ordered=ordered)
        ]
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, sql: str) -> Rows:
    try:
        return tuple(connection.execute(sql).fetchall())
    except sqlite3.Error:
        return ()
