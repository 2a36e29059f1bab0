"""The database task as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset, row_of_key
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task, Taskset
from troupe.tasks.optional import Policy
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.sql import compact, text
from troupe_tasks.sql.domains import DOMAINS
from troupe_tasks.sql.environment import RETURN_BOUND, SqlEnvironment
from troupe_tasks.sql.guard import FILE_BUDGET, Budget, run_query
from troupe_tasks.sql.postgres.guard import shared_guard
from troupe_tasks.sql.postgres.server import SqlServerSettings
from troupe_tasks.sql.published import SqlRow, published_instance
from troupe_tasks.sql.questions import TEMPLATES
from troupe_tasks.sql.state import State, decode_state
from troupe_tasks.sql.suite import Instance, columns_of, instance

_KEYWORDS = (
    "SELECT DISTINCT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN ON AND OR NOT IN COUNT "
    "SUM AVG "
    "MAX MIN DESC substr note: ```sql ``` * ( ) , . = < > <= >= <> '"
)

DomainName = Literal[
    "shop", "school", "clinic", "flights", "library", "farm", "gym", "museum", "fleet", "studio"
]
TemplateName = Literal[
    "group_over", "busy_per_kind", "total_per_group", "largest", "never_with_kind",
    "average_per_kind", "crowded_groups", "in_month", "top_three", "once_with_kind",
    "above_average", "busy_people", "never_linked",
]  # fmt: skip


class SqlParams(BaseModel):
    """Which questions, and what the writer sees."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the question generator.")
    domains: tuple[DomainName, ...] = Field(
        default=get_args(DomainName), min_length=1, description="Kinds of databases."
    )
    templates: tuple[TemplateName, ...] = Field(
        default=get_args(TemplateName), min_length=1, description="Kinds of questions."
    )
    split_by: Literal["pair", "question"] = Field(
        default="pair",
        description="pair: a split owns pairs of a domain and a template; question: it owns "
        "questions, for few domains and templates.",
    )
    writer_sees_rows: bool = Field(
        default=False, description="Shows the writer its own rows: for a writer that is alone."
    )
    style: Literal["compact", "verbose"] = Field(
        default="verbose",
        description="verbose: with rules, for a general model; compact: one line of the schema's "
        "words and answers without a fence, for a tiny one.",
    )
    data: Path | dict[Split, Path] | None = Field(
        default=None, description="Prepared questions instead of the generated ones."
    )
    databases: Path | None = Field(
        default=None, description="Folder of the prepared questions' databases, one folder each."
    )
    engine: Literal["sqlite", "postgres"] = Field(
        default="sqlite",
        description="Where queries run. postgres: on the server of the env service's settings "
        "(TROUPE_ENV_SQL_*), generated questions only.",
    )

    @model_validator(mode="after")
    def _both_or_neither(self) -> "SqlParams":
        if (self.data is None) != (self.databases is None):
            raise ValueError("give data and databases together, or neither")
        if self.data is not None and self.engine == "postgres":
            raise ValueError("published questions are SQLite's: leave engine: postgres out")
        if self.style == "compact" and (self.data or self.writer_sees_rows):
            raise ValueError("style compact is for generated questions, and shows no writer rows")
        return self


class Sql:
    """An explorer reads a database, a writer answers a question with one SQL query.

    Example: ``Sql(SqlParams(domains=("shop",))).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "sql"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = SqlParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.EXPLORER: {"reads": 0.1, "finds": 0.3},
        text.WRITER: {"runs": 0.1},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {"order": list(agents), "max_turns": 4}

    def __init__(self, params: BaseModel) -> None:
        self._params = SqlParams.model_validate(params.model_dump())
        self._is_compact = self._params.style == "compact"
        data = self._params.data
        self._rows = None if data is None else SplitRows(data, SqlRow)
        self.runs_programs = data is not None
        """A query of a published database may take seconds, as a program does."""

    def taskset(self) -> Taskset:
        """The prepared questions, or the generated ones."""
        if self._rows is not None:
            return PreparedTaskset(self._rows, by_key=True)
        hint = "allow more domains or templates, or split_by: question"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def environment(self) -> SqlEnvironment:
        """The family's judge."""
        is_postgres = self._params.engine == "postgres"
        return SqlEnvironment(
            self._instance,
            writer_sees_rows=self._params.writer_sees_rows,
            is_compact=self._is_compact,
            budget=Budget() if self._rows is None else FILE_BUDGET,
            run=shared_guard(SqlServerSettings()).run if is_postgres else run_query,
            dialect="PostgreSQL" if is_postgres else "SQLite",
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A read of a table that is not known yet; the gold query."""
        now = decode_state(state)
        found = self._instance(now.key)
        if agent == text.WRITER:
            return self._answer(found.gold)
        if place := self._unknown_word(found, now):
            table, column = place
            note = f"{column} is stored as shown"
            return self._answer(f"SELECT DISTINCT {column} FROM {table}", note)
        unread = sorted(found.tables - {*now.reads}) or sorted(found.tables)
        if self._is_compact:
            return f"SELECT COUNT(*) FROM {unread[0]}"
        return text.sql_answer(f"SELECT * FROM {unread[0]} LIMIT 5")

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any two columns of a table, with any condition."""
        found = self._instance(decode_state(state).key)
        if found.is_file:
            return text.sql_answer(f"SELECT * FROM {rng.choice(sorted(found.tables))} LIMIT 3")
        columns = columns_of(DOMAINS[decode_state(state).key.split("/")[0]])
        table = rng.choice(sorted(columns))
        first, second, third = (rng.choice(columns[table]) for _ in range(3))
        where = rng.choice(("", f" WHERE {third} > {rng.randint(1, 40)}", f" ORDER BY {third}"))
        return text.sql_answer(f"SELECT {first}, {second} FROM {table}{where}")

    def hidden_texts(self, task: Task) -> list[str]:
        """What no prompt may show: the gold query."""
        return [self._instance(task.payload.decode()).gold]

    def attackers(self) -> Mapping[str, Policy]:
        """Answers that print the shown result, the stored words, or a whole table."""
        return {
            "printed_constants": self._constants,
            "printed_words": self._words,
            "whole_table": _whole_table,
        }

    def vocabulary(self) -> Sequence[str]:
        """Keywords, signs, and the names and words of the chosen domains."""
        if self._is_compact:
            return compact.words(self._params.domains, self._params.templates)
        names: dict[str, None] = dict.fromkeys(_KEYWORDS.split())
        for domain in (DOMAINS[name] for name in self._params.domains):
            for table, columns in columns_of(domain).items():
                names |= dict.fromkeys((table, *columns))
            names |= dict.fromkeys((*domain.groups, *domain.kinds))
        return list(names)

    def _unknown_word(self, found: Instance, now: State) -> tuple[str, str] | None:
        """Table and column of a stored word that was not shown yet; None when there is none."""
        if found.is_file or set(now.finds) == set(found.stored):
            return None
        domain = DOMAINS[now.key.split("/")[0]]
        sides = ((domain.a, domain.a_group), (domain.b, domain.b_kind))
        held = f"'{found.stored[0]}'"
        return next(((t, c) for t, c in sides if _holds(found, t, c, held)), None)

    def _answer(self, sql: str, note: str = "") -> str:
        return sql if self._is_compact else text.sql_answer(sql, note)

    def _constants(self, state: bytes, agent: str, rng: Random) -> str:
        """The gold rows of the shown database as constants, and a table read for show."""
        found = self._instance(decode_state(state).key)
        if agent == text.EXPLORER:
            return text.sql_answer(f"SELECT * FROM {min(found.tables)} LIMIT 9")
        rows = [", ".join(_literal(cell) for cell in row) for row in found.shown.rows[:8]]
        table = min(found.tables)
        picks = [f"SELECT {row} WHERE (SELECT COUNT(*) FROM {table}) > 0" for row in rows]
        return text.sql_answer(" UNION ALL ".join(picks))

    def _words(self, state: bytes, agent: str, rng: Random) -> str:
        """The stored words as constants beside a row of a table."""
        found = self._instance(decode_state(state).key)
        picks = ", ".join(["1", *map(_literal, found.stored)])
        return text.sql_answer(f"SELECT {picks} FROM {min(found.tables)} LIMIT 1")

    def _instance(self, key: str) -> Instance:
        if self._rows is not None and self._params.databases is not None:
            return published_instance(row_of_key(self._rows, key), self._params.databases)
        parts = key.split("/")
        if len(parts) != 3 or parts[0] not in DOMAINS or parts[1] not in TEMPLATES:
            raise InvalidArgumentError(
                f"{key[:80]!r} is no question of this family; give all services one 'data'"
            )
        return instance(parts[0], parts[1], int(parts[2]))

    def split_key(self, task: Task) -> str | None:
        """Domain and template, or with ``split_by: question`` the question."""
        return None if self._rows is not None else self._owner(task.payload.decode())

    def _owner(self, key: str) -> str:
        return f"sql/{key.rpartition('/')[0] if self._params.split_by == 'pair' else key}"

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        domain, template = rng.choice(self._params.domains), rng.choice(self._params.templates)
        seed = rng.getrandbits(32)
        key = f"{domain}/{template}/{seed}"
        return key.encode() if split_of_key(self._owner(key)) == split else None


def _holds(found: Instance, table: str, column: str, literal: str) -> bool:
    return table in found.tables and bool(
        run_query(found.shown.database, f"SELECT 1 FROM {table} WHERE {column} = {literal}").rows
    )


def _literal(cell: object) -> str:
    if cell is None:
        return "NULL"
    return str(cell) if isinstance(cell, int | float) else "'" + str(cell).replace("'", "''") + "'"


def _whole_table(state: bytes, agent: str, rng: Random) -> str:
    domain = DOMAINS.get(decode_state(state).key.split("/")[0], DOMAINS["shop"])
    return text.sql_answer(f"SELECT * FROM {domain.link}")
