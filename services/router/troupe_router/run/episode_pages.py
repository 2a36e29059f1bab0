"""Pages of recorded episodes: filters, orders and cursors over the index.

Owns the cursor's format. Reads episodes.jsonl only through the index.
"""

import base64
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from troupe.clients.rest.models.episode_tree import EpisodeTwinDocument
from troupe.clients.rest.models.episodes import EpisodeFilter, EpisodePage, EpisodeRowDocument
from troupe.clients.rest.models.metrics import EpisodeCountsDocument
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe_router.run.episode_index import EpisodeIndex

_BUDGET_S = 0.1
"""A page waits this long for the index to catch up; then it shows what is indexed."""
_TWINS = 200


def episode_page(
    run_dir: Path, wanted: EpisodeFilter, *, limit: int, cursor: str | None
) -> EpisodePage:
    """A page of rows; raises InvalidArgumentError for a cursor of another list."""
    index = EpisodeIndex(run_dir)
    after = _decode(cursor, wanted) if cursor else None
    is_complete = index.catch_up(budget_s=_BUDGET_S)
    with index.reading() as database:
        if database is None:
            return EpisodePage(episodes=[], total=0, is_complete=is_complete)
        source, where, values = _selection(wanted)
        total = database.execute(f"SELECT count(*) FROM {source} WHERE {where}", values)
        count = int(total.fetchone()[0])
        rows = _rows(database, wanted, source, where, values, limit + 1, after)
    page = rows[:limit]
    more = len(rows) > limit and page
    return EpisodePage(
        episodes=[EpisodeRowDocument.model_validate_json(row) for _, _, row in page],
        next_cursor=_encode(wanted, page[-1][0], page[-1][1]) if more else None,
        total=count,
        is_complete=is_complete,
    )


def find_episode(run_dir: Path, short: str) -> tuple[EpisodeRowDocument, dict[str, Any]]:
    """Row and line of one episode; raises NotFoundError."""
    index = EpisodeIndex(run_dir)
    is_complete = index.catch_up(budget_s=_BUDGET_S)
    with index.reading() as database:
        query = "SELECT place, size, row FROM episode JOIN shown USING (place) WHERE id = ?"
        entry = database.execute(query, (short,)).fetchone() if database else None
    line = index.line(entry[0], entry[1]) if entry else None
    if entry is None or line is None:
        hint = "" if is_complete else "; the index is still being made, so ask again"
        raise NotFoundError(
            f"no recorded episode '{short}' (training episodes are kept by "
            f"TROUPE_ROUTER_RECORD_FRACTION){hint}"
        )
    return EpisodeRowDocument.model_validate_json(entry[2]), line


def twins(run_dir: Path, task_id: str, short: str) -> list[EpisodeTwinDocument]:
    """The same task instance at other times, newest first."""
    with EpisodeIndex(run_dir).reading() as database:
        if database is None:
            return []
        query = (
            "SELECT row FROM episode JOIN shown USING (place) WHERE task_id = ? AND id != ? "
            "ORDER BY place DESC LIMIT ?"
        )
        rows = database.execute(query, (task_id, short, _TWINS)).fetchall()
    return [EpisodeTwinDocument.model_validate_json(row) for (row,) in rows]


def lines_of_step(run_dir: Path, step: int, *, limit: int) -> list[dict[str, Any]]:
    """Lines of a step's recorded training episodes, up to ``limit`` of them."""
    index = EpisodeIndex(run_dir)
    with index.reading() as database:
        if database is None:
            return []
        query = "SELECT place, size FROM episode WHERE step = ? AND kind = 'train' LIMIT ?"
        places = database.execute(query, (step, limit)).fetchall()
    lines = (index.line(place, size) for place, size in places)
    return [line for line in lines if line is not None]


def step_counts(run_dir: Path, step: int) -> EpisodeCountsDocument:
    """Recorded training episodes of a step: all, solved, dropped."""
    index = EpisodeIndex(run_dir)
    index.catch_up(budget_s=_BUDGET_S)
    counts = {"num": 0, "num_success": 0, "num_dropped": 0}
    with index.reading() as database:
        if database is None:
            return EpisodeCountsDocument(**counts)
        query = "SELECT failure, count(*) FROM episode WHERE step = ? AND kind = 'train' GROUP BY 1"
        for failure, count in database.execute(query, (step,)):
            counts["num"] += count
            counts["num_success"] += count if failure is None else 0
            counts["num_dropped"] += count if failure == "dropped" else 0
    return EpisodeCountsDocument(**counts)


def _selection(wanted: EpisodeFilter) -> tuple[str, str, list[Any]]:
    """FROM, WHERE and its values; seats repeat the filter columns, so no join is needed."""
    clauses: list[str] = ["1"]
    values: list[Any] = []

    def add(clause: str, value: Any) -> None:
        if value is not None:
            clauses.append(clause)
            values.append(value)

    add("agent = ?", wanted.agent)
    add("kind = ?", wanted.kind)
    add("step = ?", wanted.step)
    add("task_id = ?", wanted.task_id)
    add("reward >= ?", wanted.min_reward)
    add("reward <= ?", wanted.max_reward)
    if wanted.failure == "any":
        clauses.append("failure IS NOT NULL")
    elif wanted.failure == "none":
        clauses.append("failure IS NULL")
    else:
        add("failure = ?", wanted.failure)
    if wanted.order.startswith("reward"):
        clauses.append("reward IS NOT NULL")
    return "episode" if wanted.agent is None else "seat", " AND ".join(clauses), values


def _rows(
    database: sqlite3.Connection,
    wanted: EpisodeFilter,
    source: str,
    where: str,
    values: list[Any],
    limit: int,
    after: tuple[float | None, int] | None,
) -> list[tuple[float | None, int, str]]:
    """Rows in order behind ``after``: (reward, place, row)."""
    is_down = wanted.order in ("newest", "reward_desc")
    sign, direction = ("<", "DESC") if is_down else (">", "ASC")
    by_reward = wanted.order.startswith("reward")
    if after is not None and by_reward:
        where += f" AND (reward, place) {sign} (?, ?)"
        values = [*values, *after]
    elif after is not None:
        where += f" AND place {sign} ?"
        values = [*values, after[1]]
    order = f"reward {direction}, " if by_reward else ""
    query = (
        f"SELECT reward, place FROM {source} WHERE {where} "
        f"ORDER BY {order}place {direction} LIMIT ?"
    )
    places = database.execute(query, [*values, limit]).fetchall()
    look = "SELECT row FROM shown WHERE place = ?"
    return [(r, p, database.execute(look, (p,)).fetchone()[0]) for r, p in places]


def _digest(wanted: EpisodeFilter) -> str:
    """Identifies the filter in a cursor."""
    values = ", ".join(f"{name}={getattr(wanted, name)!r}" for name in EpisodeFilter.model_fields)
    return hashlib.blake2b(f"EpisodeFilter({values})".encode(), digest_size=6).hexdigest()


def _encode(wanted: EpisodeFilter, reward: float | None, place: int) -> str:
    text = json.dumps([_digest(wanted), reward, place])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str, wanted: EpisodeFilter) -> tuple[float | None, int]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        digest, reward, place = json.loads(base64.urlsafe_b64decode(padded.encode()))
        if digest != _digest(wanted):
            raise ValueError("it belongs to another filter")
        if not 0 <= int(place) < 2**62:
            raise ValueError("it holds no position")
        return (None if reward is None else float(reward)), int(place)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the cursor {cursor[:80]!r} is not one of this list ({error}); give next_cursor of a "
            "page with the same filters, or none to start again",
            pointer="/query/cursor",
        ) from error
