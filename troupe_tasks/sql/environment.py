"""Judges one action of the database task on its own copy of the state.

A query is right when its result equals the gold query's on every database: the shown one and the
hidden ones. The team is paid for a new best of two steps: right on the shown database and on at
least half of the hidden ones, then right on all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.sql import compact, text
from troupe_tasks.sql.guard import Budget, Database, Result
from troupe_tasks.sql.state import (
    MAX_LOG,
    MAX_QUERY_CHARS,
    Attempt,
    Exchange,
    State,
    decode_state,
    encode_state,
)
from troupe_tasks.sql.suite import Instance
from troupe_tasks.sql.tokens import constants

Run = Callable[[Database, str, Budget], Result]
"""Runs one untrusted query on one database: SQLite's guard or PostgreSQL's."""

RETURN_BOUND = 1.0
PARTLY = 0.3
"""Paid once for a query that is right on the shown database and on half of the hidden ones."""


class SqlEnvironment:
    """The pure function of the database task: see ``troupe.tasks.family.Environment``.

    ``named`` gives the instance that a state's key stands for; ``dialect`` is what the prompts
    call the database.
    """

    def __init__(
        self,
        named: Callable[[str], Instance],
        *,
        writer_sees_rows: bool,
        is_compact: bool,
        budget: Budget,
        run: Run,
        dialect: str,
    ) -> None:
        self._named = named
        self._is_compact = is_compact
        self._run = run
        self._dialect = dialect
        self._writer_sees_rows = writer_sees_rows
        self._budget = budget

    def reset(self, task: Task) -> bytes:
        """The first state: nothing asked."""
        return encode_state(State(task.payload.decode()))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees."""
        now, known = decode_state(state), _known(agent)
        found = self._named(now.key)
        if self._is_compact:
            return compact.observation(found.short, found.schema, now, known)
        return text.observation(
            found.text,
            found.schema,
            now,
            known,
            writer_sees_rows=self._writer_sees_rows,
            dialect=self._dialect,
        )

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Run the explorer's query, or judge the writer's."""
        before = decode_state(state)
        if before.is_solved:
            nothing = dict.fromkeys(_TERMS[_known(agent)], 0.0)
            return Transition(state, 0.0, nothing, done=True, success=True)
        found = self._named(before.key)
        query = text.read_query(action)
        if _known(agent) == text.EXPLORER:
            return self._explored(before, found, query, text.read_note(action))
        return self._answered(before, found, query)

    def _explored(self, before: State, found: Instance, query: str, note: str) -> Transition:
        result = self._run(found.shown.database, query, self._budget)
        known = [*before.reads] if not result.rows else [*before.reads, *sorted(result.reads)]
        reads = tuple(table for table in dict.fromkeys(known) if table in found.tables)
        shown = text.shown_result(result)
        seen: set[str] = set()
        if result.reads & found.tables:
            # What the query itself writes was printed, and not found.
            printed = constants(query)
            seen = {
                word
                for word in text.stored_texts(result.rows)
                if word in shown and word.casefold() not in printed
            }
        finds = tuple(word for word in found.stored if word in seen or word in before.finds)
        after = replace(
            before,
            log=(*before.log, Exchange(query[:MAX_QUERY_CHARS], shown, note))[-MAX_LOG:],
            reads=reads,
            finds=finds,
        )
        terms = {
            "reads": (len(reads) - len(before.reads)) / max(1, len(found.tables)),
            "finds": (len(finds) - len(before.finds)) / max(1, len(found.stored)),
        }
        info = {"query": query[:MAX_QUERY_CHARS], "result": shown, "refusal": result.refusal}
        return Transition(encode_state(after), 0.0, terms, done=False, success=False, info=info)

    def _answered(self, before: State, found: Instance, query: str) -> Transition:
        first = self._first_result(found, query)
        is_right_here = found.agreeing([first]) == 1
        agreeing = found.agreeing(self._results(found, query, first))
        worth = _worth(is_right_here, agreeing, len(found.witnesses))
        runs = first.refusal is None and bool(first.reads & found.tables)
        rows = text.shown_result(first) if self._writer_sees_rows else ""
        after = replace(
            before,
            best=max(before.best, worth),
            attempt=Attempt(
                query[: 2 * MAX_QUERY_CHARS], first.refusal, len(first.rows), is_right_here, rows
            ),
            has_run=before.has_run or runs,
        )
        info = {
            "query": query[: 2 * MAX_QUERY_CHARS],
            "refusal": first.refusal,
            "agreeing": agreeing,
            "databases": len(found.witnesses),
        }
        return Transition(
            encode_state(after),
            after.best - before.best,
            {"runs": float(runs and not before.has_run)},
            done=after.is_solved,
            success=after.is_solved,
            info=info,
        )

    def _first_result(self, found: Instance, query: str) -> Result:
        """The query's result on the shown database.

        A query that reads none of the gold query's tables prints constants, and is worth nothing.
        """
        first = self._run(found.shown.database, query, self._budget)
        if first.refusal or not first.reads & found.tables:
            return replace(first, rows=(), refusal=first.refusal or "failed")
        return first

    def _results(self, found: Instance, query: str, first: Result) -> Iterator[Result]:
        """The query's result on each database, one at a time since each may be large.

        Only ``first`` when it has none there.
        """
        yield first
        if first.refusal is None:
            for witness in found.witnesses[1:]:
                yield self._run(witness.database, query, self._budget)


_TERMS = {text.EXPLORER: ("reads", "finds"), text.WRITER: ("runs",)}


def _worth(is_right_here: bool, agreeing: int, num_databases: int) -> float:
    if agreeing == num_databases:
        return 1.0
    hidden, num_hidden = agreeing - is_right_here, num_databases - 1
    return PARTLY if is_right_here and num_hidden and 2 * hidden >= num_hidden else 0.0


def _known(agent: str) -> str:
    return known_agent(agent, text.AGENTS, task="Sql")
