"""Published questions (Spider, BIRD): their row, and an instance made of a folder of databases."""

import sqlite3
from functools import lru_cache
from pathlib import Path

from pydantic import ConfigDict, Field

from troupe.data.overlap import near_verbatim
from troupe.data.taskset import PreparedRow
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe_tasks.sql.guard import FILE_BUDGET, run_query
from troupe_tasks.sql.suite import Instance, Witness
from troupe_tasks.sql.tokens import first_word, tokens

MAX_KEPT = 64
MAX_SCHEMA_CHARS = 20_000
SUFFIXES = (".sqlite", ".db")


class SqlRow(PreparedRow):
    """One question of a published data set.

    Example: ``SqlRow(id="spider/0", db_id="pets_1", question="How many pets?", sql="SELECT ...")``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    db_id: str = Field(pattern=r"^[A-Za-z0-9_\-]{1,80}$")
    question: str
    sql: str
    evidence: str = ""
    difficulty: str = ""
    source: str = ""

    @property
    def compared(self) -> str:
        """The question, of its database: many databases are asked how many rows they have."""
        return f"{self.db_id} {near_verbatim(self.question)}"


def published_instance(row: SqlRow, databases: Path) -> Instance:
    """The row with every database of ``<databases>/<db_id>/``, the one named db_id first.

    Raises NotFoundError without a database, InvalidArgumentError when the gold query fails.
    """
    return _instance_of(row.model_dump_json(), databases)


@lru_cache(maxsize=MAX_KEPT)
def _instance_of(row_json: str, databases: Path) -> Instance:
    row = SqlRow.model_validate_json(row_json)
    folder = databases / row.db_id
    files = sorted(p for p in folder.glob("*") if p.suffix in SUFFIXES) if folder.is_dir() else []
    if not files:
        raise NotFoundError(
            f"{folder} holds no {' or '.join(SUFFIXES)} file; give the parameter 'databases' the "
            "folder of the data set's databases (<db_id>/<db_id>.sqlite)"
        )
    files.sort(key=lambda path: path.stem != row.db_id)
    witnesses: list[Witness] = []
    tables: frozenset[str] = frozenset()
    for path in files:
        result = run_query(path, row.sql, FILE_BUDGET)
        if result.refusal:
            raise InvalidArgumentError(
                f"{row.id}: its own query is refused on {path.name} ({result.refusal}); leave the "
                "row out"
            )
        witnesses.append(Witness(path, result.rows))
        tables = tables or result.reads
    text = f"{row.question}\nHint: {row.evidence}" if row.evidence else row.question
    stored = tuple(dict.fromkeys(part[1:-1] for kind, part in tokens(row.sql) if kind == "string"))
    return Instance(text, _schema(files[0]), row.sql, stored, tables, tuple(witnesses), True)


def _schema(path: Path) -> str:
    """The file's CREATE TABLE statements without comments, cut."""

    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        found = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            "ORDER BY rowid"
        ).fetchall()
    except sqlite3.Error as error:
        raise InvalidArgumentError(f"{path.name} is no SQLite database ({error})") from None
    finally:
        connection.close()
    return "\n".join(" ".join(str(sql).split()) for (sql,) in found if sql)[:MAX_SCHEMA_CHARS]


def is_readable(sql: str) -> bool:
    """Whether a published query is one that reads; converters refuse others."""
    return first_word(sql) in ("select", "with")
