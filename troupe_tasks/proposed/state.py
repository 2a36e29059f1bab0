"""The state of a proposed puzzle between steps, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode.

    ``pool``: numbers that the proposer may choose from. ``numbers`` are the puzzle's, in order of
    size, and empty before it is posed. ``right``: for each attempt so far whether it was.
    """

    pool: tuple[int, ...]
    attempts: int
    numbers: tuple[int, ...] = ()
    target: int = 0
    right: tuple[bool, ...] = ()
    is_done: bool = False


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    return State(
        pool=tuple(raw["pool"]),
        attempts=raw["attempts"],
        numbers=tuple(raw["numbers"]),
        target=raw["target"],
        right=tuple(raw["right"]),
        is_done=raw["is_done"],
    )
