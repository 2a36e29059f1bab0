"""The state of a guided walk between steps, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from troupe_tasks.guided_walk.maps import Walkway
from troupe_tasks.plan_path.grid import Cell, Grid, distances

End = Literal["arrived", "bumped", "stopped_elsewhere"]
"""How a walk ended: it stopped at the goal, walked into a wall, or stopped at another cell."""


@dataclass(frozen=True, slots=True)
class Walk:
    """One moment of an episode.

    ``best`` is the least distance to the goal so far; ``message`` is what the walker heard in this
    turn, None before the scout spoke; ``end`` is None while the walk goes on.
    """

    grid: Grid
    start: Cell
    goal: Cell
    at: Cell
    best: int
    message: str | None = None
    end: End | None = None

    @property
    def first_distance(self) -> int:
        """True distance from the start to the goal, in moves."""
        return distances(self.grid, self.goal)[self.start]

    @property
    def distance(self) -> int:
        """True distance from the present cell to the goal, in moves."""
        return distances(self.grid, self.goal)[self.at]


def encode_walkway(walkway: Walkway) -> bytes:
    """A task payload, e.g. ``{"rows":["..","#."],"start":[0,0],"goal":[1,1]}``."""
    return _encode({"rows": walkway.grid.rows, "start": walkway.start, "goal": walkway.goal})


def decode_walkway(payload: bytes) -> Walkway:
    """The instance of a task payload."""
    raw = json.loads(payload)
    return Walkway(Grid(tuple(raw["rows"])), _cell(raw["start"]), _cell(raw["goal"]))


def first_state(walkway: Walkway) -> Walk:
    """The state that an episode begins in."""
    best = distances(walkway.grid, walkway.goal)[walkway.start]
    return Walk(walkway.grid, walkway.start, walkway.goal, walkway.start, best)


def encode_state(state: Walk) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return _encode(asdict(state) | {"grid": state.grid.rows})


def decode_state(data: bytes) -> Walk:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    start, goal, at = (_cell(raw[key]) for key in ("start", "goal", "at"))
    grid = Grid(tuple(raw["grid"]))
    return Walk(grid, start, goal, at, raw["best"], raw["message"], raw["end"])


def _cell(pair: list[int]) -> Cell:
    return pair[0], pair[1]


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
