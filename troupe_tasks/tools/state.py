"""The state of a case between turns, and its encoding as compact JSON bytes.

The database is the case's own with ``writes`` done to it, so a state forks by being copied.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from troupe_tasks.tools.case import Case, Database, Domain, case_of
from troupe_tasks.tools.customer import PATIENCE
from troupe_tasks.tools.dialect import Call

Outcome = Literal["open", "solved", "wrong", "left"]
Line = tuple[str, str]
"""Who spoke (customer, clerk, operator, tool), and what."""
MAX_LINES = 16


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode.

    ``known`` are the topics that the customer told of, ``agreed`` the keys of changes it agreed to,
    ``seen`` the numbers of the case's lookups that were made. ``front`` is what the clerk sees,
    ``desk`` what the operator sees. ``paid`` is what the team has, and gives back on failure.
    """

    case: Case
    writes: tuple[Call, ...] = ()
    known: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    seen: tuple[int, ...] = ()
    is_checked: bool = False
    """Whether the facts that the customer gave of itself were compared with the database."""
    patience: int = PATIENCE
    paid: float = 0.0
    outcome: Outcome = "open"
    front: tuple[Line, ...] = ()
    desk: tuple[Line, ...] = ()


def database(state: State, domain: Domain) -> Database:
    """The database as it stands."""
    db = state.case.db
    for call in state.writes:
        after = domain.write(db, call)
        db = db if isinstance(after, str) else after
    return db


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw: Mapping[str, Any] = json.loads(data)
    return State(
        case=case_of(raw["case"]),
        writes=tuple(Call(**call) for call in raw["writes"]),
        known=tuple(raw["known"]),
        agreed=tuple(raw["agreed"]),
        seen=tuple(raw["seen"]),
        is_checked=raw["is_checked"],
        patience=raw["patience"],
        paid=raw["paid"],
        outcome=raw["outcome"],
        front=tuple((who, text) for who, text in raw["front"]),
        desk=tuple((who, text) for who, text in raw["desk"]),
    )
