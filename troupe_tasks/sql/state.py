"""The state of a database episode between steps, and its encoding as compact JSON bytes.

It names the question; databases and the gold query are made again from the name, so a state stays
below 4 KiB.
"""

import json
from dataclasses import asdict, dataclass

from troupe_tasks.sql.guard import Refusal

MAX_LOG = 3
MAX_QUERY_CHARS = 300
MAX_SHOWN_CHARS = 420
MAX_NOTE_CHARS = 160


@dataclass(frozen=True, slots=True)
class Exchange:
    """One query of the explorer, what it showed, and the explorer's note."""

    query: str
    shown: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The writer's last query: how it ended on the shown database.

    ``shown`` are its first rows, where the writer may see them.
    """

    query: str
    refusal: Refusal | None
    num_rows: int
    is_right_here: bool
    shown: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode; ``best`` is the highest share of the reward reached so far."""

    key: str
    best: float = 0.0
    log: tuple[Exchange, ...] = ()
    attempt: Attempt | None = None
    reads: tuple[str, ...] = ()
    """The gold query's tables that the explorer has read."""
    finds: tuple[str, ...] = ()
    """The gold query's words, as stored, that the explorer has been shown."""
    has_run: bool = False

    @property
    def is_solved(self) -> bool:
        """Whether a query was right on every database."""
        return self.best >= 1.0


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":"), ensure_ascii=False).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    attempt = raw.pop("attempt")
    return State(
        key=raw["key"],
        best=raw["best"],
        log=tuple(Exchange(**item) for item in raw["log"]),
        attempt=None if attempt is None else Attempt(**attempt),
        reads=tuple(raw["reads"]),
        finds=tuple(raw["finds"]),
        has_run=raw["has_run"],
    )
