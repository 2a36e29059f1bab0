"""The state of a puzzle's episode between steps, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass

from troupe_tasks.puzzles.puzzle import Played


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a tool call: the actions tried on a copy, and what they did."""

    actions: tuple[str, ...]
    board: str
    refused: tuple[int, ...]

    @property
    def played(self) -> Played:
        """What the actions did."""
        return Played(self.board, self.refused)


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode.

    ``first`` is the distance of the first board, ``best`` the least one reached so far, ``tried``
    the least one of the tool's trials.
    """

    instance: str
    board: str
    first: int
    best: int
    tried: int
    trial: Trial | None = None


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    trial = raw["trial"]
    if trial is not None:
        trial = Trial(tuple(trial["actions"]), trial["board"], tuple(trial["refused"]))
    return State(raw["instance"], raw["board"], raw["first"], raw["best"], raw["tried"], trial)
