"""An index of a job's episodes.jsonl: where each line is, and the columns that lists filter by.

A cache beside the file (SQLite): it follows the file's growth, starts over when the file was cut or
the index is corrupt, and may be deleted at any time. Never the source of truth; only this module
writes it.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from troupe.clients.rest.models.episodes import EpisodeRowDocument
from troupe.errors import UnavailableError
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.run.episode_rows import episode_row, mean_reward
from troupe_router.run.record_lines import parse_line, part_name, read_lines

_log = get_logger(__name__)
_VERSION = 3
_NAME = ".episodes.sqlite"
_BATCH = 256
_Indexed = tuple[int, int, EpisodeRowDocument, str]
"""Place and size of a line, its row, and the row as JSON."""
_TAIL = 64
# Indices carry what lists filter by, so that counting never looks a row up.
_SCHEMA = f"""
DROP TABLE IF EXISTS episode; DROP TABLE IF EXISTS seat; DROP TABLE IF EXISTS place;
DROP TABLE IF EXISTS shown;
CREATE TABLE episode (
  place INTEGER PRIMARY KEY, size INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
  step INTEGER NOT NULL, task_id TEXT NOT NULL, failure TEXT, reward REAL);
CREATE TABLE shown (place INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE UNIQUE INDEX episode_id ON episode (id);
CREATE INDEX episode_kind ON episode (kind, place, failure, reward);
CREATE INDEX episode_step ON episode (step, kind, place);
CREATE INDEX episode_task ON episode (task_id, place);
CREATE INDEX episode_failure ON episode (failure, place, kind, reward);
CREATE INDEX episode_reward ON episode (reward, place, kind, failure);
CREATE TABLE seat (
  agent TEXT NOT NULL, reward REAL NOT NULL, place INTEGER NOT NULL, kind TEXT NOT NULL,
  step INTEGER NOT NULL, task_id TEXT NOT NULL, failure TEXT,
  PRIMARY KEY (agent, reward, place)) WITHOUT ROWID;
CREATE INDEX seat_place ON seat (agent, place);
CREATE TABLE place (size INTEGER NOT NULL, tail BLOB NOT NULL);
INSERT INTO place VALUES (0, x'');
PRAGMA user_version = {_VERSION};
"""


class EpisodeIndex:
    """The index of one run folder. Cheap to make; every method may run in a thread of its own."""

    _locks: dict[Path, threading.Lock] = {}  # noqa: RUF012 (one lock a file in this process)
    _locks_lock = threading.Lock()

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / "episodes.jsonl"
        self._path = run_dir / _NAME
        with self._locks_lock:
            self._lock = self._locks.setdefault(self._path, threading.Lock())

    def catch_up(self, *, budget_s: float) -> bool:
        """Index what was appended, for ``budget_s`` at most; whether nothing is left."""
        if not self._file.is_file():
            return True
        with self._lock:
            try:
                if self._path.is_symlink():  # SQLite would write where it leads to
                    self._path.unlink()
                return self._catch_up(time.monotonic() + budget_s)
            except (sqlite3.OperationalError, OSError) as error:
                _log.warning("episode_index.not_written", path=str(self._path), error=str(error))
            except sqlite3.DatabaseError as error:
                _log.warning("episode_index.broken", path=str(self._path), error=str(error))
                self._path.unlink(missing_ok=True)
            return False

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None]:
        """A connection for queries, or None while there is no index.

        Raises:
            UnavailableError: the index cannot be read now.
        """
        if not self._path.is_file():
            yield None
            return
        try:
            with self._open() as database:
                yield database
        except sqlite3.DatabaseError as error:
            raise UnavailableError(
                f"the index of episodes {self._path} cannot be read ({error}); ask again, or "
                "delete the file: it is made anew"
            ) from error

    def line(self, place: int, size: int) -> dict[str, Any] | None:
        """The line of the file at ``place``, or None when the file was cut since."""
        try:
            with self._file.open("rb") as file:
                file.seek(place)
                text = file.read(size)
        except OSError:
            return None
        return parse_line(text)

    def _catch_up(self, deadline: float) -> bool:
        with self._open() as database, self._file.open("rb") as file:
            end = _end_of(database, file)
            while True:
                file.seek(end)
                batch, end = _next_lines(file, end)
                if not batch:
                    return True
                _insert(database, batch)
                file.seek(max(0, end - _TAIL))
                tail = file.read(end - file.tell())
                database.execute("UPDATE place SET size = ?, tail = ?", (end, tail))
                database.commit()
                if time.monotonic() > deadline:
                    return False

    @contextlib.contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=5.0)
        try:
            database.execute("PRAGMA synchronous = OFF")
            if database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                database.executescript(_SCHEMA)
            yield database
        finally:
            database.close()


def _end_of(database: sqlite3.Connection, file: BinaryIO) -> int:
    """Where the indexed part of the file ends; empties the index of a file that was cut."""
    size, tail = database.execute("SELECT size, tail FROM place").fetchone()
    file.seek(max(0, size - len(tail)))
    if file.read(len(tail)) == tail:
        return size
    database.executescript(_SCHEMA)
    return 0


def _next_lines(file: BinaryIO, end: int) -> tuple[list[_Indexed], int]:
    """Up to a batch of whole lines from the file's place, and where they end; garbage is none."""
    batch: list[_Indexed] = []
    for place, text in read_lines(file):
        if not text.endswith(b"\n"):
            break
        end = place + len(text)
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            line = parse_line(text)
            if line and part_name(line):
                row = episode_row(line)
                batch.append((place, len(text), row, row.model_dump_json()))
        if len(batch) == _BATCH:
            break
    return batch, end


def _insert(database: sqlite3.Connection, batch: list[_Indexed]) -> None:
    for place, size, row, shown in batch:
        what = (row.kind, row.step, row.task_id, row.failure)
        database.execute(
            "INSERT OR REPLACE INTO episode VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (place, size, row.id, *what, mean_reward(row)),
        )
        database.execute("INSERT OR REPLACE INTO shown VALUES (?, ?)", (place, shown))
        seats = [(agent, a.reward_mean, place, *what) for agent, a in row.agents.items()]
        database.executemany("INSERT OR REPLACE INTO seat VALUES (?, ?, ?, ?, ?, ?, ?)", seats)
