"""The prompts of the database task, and how its answers are read.

Shows the question, the schema and what was read on the shown database. Never sees the gold query
or a hidden database.
"""

from collections.abc import Sequence

from troupe.tasks.family import Message, Observation
from troupe.tasks.quoting import quoted
from troupe_tasks.code import fences
from troupe_tasks.sql.guard import Cell, Refusal, Result
from troupe_tasks.sql.state import (
    MAX_NOTE_CHARS,
    MAX_SHOWN_CHARS,
    Attempt,
    Exchange,
    State,
)

EXPLORER, WRITER = "explorer", "writer"
AGENTS = (EXPLORER, WRITER)
MAX_READ_CHARS = 20_000
SHOWN_ROWS, SHOWN_CELL = 10, 30

_LABELS = ("sql", "sqlite", "sqlite3", "postgresql", "postgres", "pgsql", "mysql")

REFUSALS: dict[Refusal, str] = {
    "no_query": "no query could be read",
    "not_a_select": "only one statement that begins with SELECT or WITH is run",
    "too_long": "it is too long",
    "too_deep": "it is nested or repeated too much",
    "syntax": "its syntax is wrong",
    "unknown_table": "it names a table that does not exist",
    "unknown_column": "it names a column that does not exist or is ambiguous",
    "not_allowed": "it uses something that is not allowed here",
    "budget": "it takes too much work or memory",
    "too_many_rows": "it has too many rows",
    "failed": "it could not be run",
}


def read_query(action: str) -> str:
    """The query in the last fence that is marked as SQL, else in the last without a mark, else in
    the last; without a fence what follows the last line that begins a SELECT."""
    queries = fences.marked(action, _LABELS) or [query for _, query in fences.blocks(action)]
    found = queries[-1] if queries else _last_start(action[-MAX_READ_CHARS:].splitlines())
    return found.replace("\0", "").strip().rstrip(";").rstrip()


def _last_start(lines: list[str]) -> str:
    """From the last line whose first word is SELECT or WITH to an empty line, a note or a fence."""
    starts = [at for at, line in enumerate(lines) if _first(line) in ("select", "with")]
    if not starts:
        return ""
    found: list[str] = []
    for line in lines[starts[-1] :]:
        if not line.strip() or line.strip().lower().startswith("note:"):
            break
        found.append(line)
    return "\n".join(found).partition("```")[0]


def _first(line: str) -> str:
    return line.split(None, 1)[0].lower() if line.strip() else ""


def read_note(action: str) -> str:
    """The last line that begins with ``note:``."""
    lines = (line.strip() for line in action[-MAX_READ_CHARS:].splitlines())
    notes = [line[5:].strip() for line in lines if line.lower().startswith("note:")]
    return notes[-1][:MAX_NOTE_CHARS] if notes else ""


def shown_result(result: Result) -> str:
    """A result as agents see it: at most ten rows, cells cut, cut as a whole."""
    if result.refusal:
        return f"(no result: {REFUSALS[result.refusal]})"
    lines = [" | ".join(_cell(name) for name in result.columns)]
    lines += [" | ".join(_cell(cell) for cell in row) for row in result.rows[:SHOWN_ROWS]]
    left_out = len(result.rows) - SHOWN_ROWS
    lines += [f"... {left_out} more rows"] if left_out > 0 else []
    text = "\n".join(lines if result.rows else [lines[0], "(no rows)"])
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 4]} ..."


def observation(
    question: str,
    schema: str,
    state: State,
    agent: str,
    *,
    writer_sees_rows: bool,
    dialect: str,
) -> Observation:
    """The prompt of ``agent``."""
    rules = _EXPLORER_RULES if agent == EXPLORER else _WRITER_RULES
    rules = rules.format(dialect=dialect)
    if agent == WRITER and writer_sees_rows:
        rules += _ALONE
    parts = [f"Question: {question}", f"Schema:\n{schema}", *map(_exchange, state.log)]
    if state.attempt is not None:
        parts.append(_attempt(state.attempt, agent))
    return Message("system", rules), Message("user", "\n\n".join(parts))


def sql_answer(sql: str, note: str = "") -> str:
    """The text that ``read_query`` and ``read_note`` read."""
    return (f"note: {note}\n" if note else "") + f"```sql\n{sql}\n```"


def stored_texts(rows: Sequence[Sequence[Cell]]) -> set[str]:
    """The texts among the cells that ``shown_result`` shows."""
    shown = {str(cell) for row in rows[:SHOWN_ROWS] for cell in row if isinstance(cell, str)}
    return {text for text in shown if len(text) <= SHOWN_CELL}


def _cell(cell: Cell) -> str:
    text = "NULL" if cell is None else cell.hex() if isinstance(cell, bytes) else str(cell)
    text = " ".join(text.split()) if text.split() else text
    return text if len(text) <= SHOWN_CELL else f"{text[: SHOWN_CELL - 3]}..."


def _exchange(exchange: Exchange) -> str:
    note = f"\nThe explorer's note:\n{quoted(exchange.note)}" if exchange.note else ""
    return f"Query:\n{quoted(exchange.query)}\nResult:\n{quoted(exchange.shown)}{note}"


def _attempt(attempt: Attempt, agent: str) -> str:
    owner = "Your last answer" if agent == WRITER else "The writer's last answer"
    if attempt.refusal:
        ended = f"It did not run: {REFUSALS[attempt.refusal]}."
    elif attempt.is_right_here:
        ended = "Its result is right on this database, but not on every other one."
    else:
        ended = f"It ran and gave {attempt.num_rows} rows, which are not the right result."
    rows = f"\nIts first rows:\n{quoted(attempt.shown)}" if attempt.shown else ""
    return f"{owner}:\n{quoted(attempt.query)}\n{ended}{rows}"


_EXPLORER_RULES = (
    "You are the explorer of a team that answers a question with one SQL query ({dialect}). The "
    "writer writes the "
    "query and does not see the data; you do. Words and days may be stored in another form than in "
    "the question. "
    "Write one SELECT that shows the writer what is needed: its first 10 rows will be shown to you "
    "both. Do not "
    "repeat a query. You may add a line that begins with note: for the writer. Think briefly, then "
    "give the query "
    "in one fenced block:\n```sql\nSELECT ...\n```"
)
_WRITER_RULES = (
    "You are the writer of a team that answers a question with one SQL query ({dialect}). The "
    "explorer shows you "
    "rows of one database; your query is judged on that one and on others with the same schema and "
    "other rows. The "
    "columns must be in the order that the question names. Think briefly, then give the whole "
    "query in one "
    "fenced block:\n```sql\nSELECT ...\n```"
)
_ALONE = (
    " The first rows of your query are shown to you, so you may use a turn to look at the data."
)
