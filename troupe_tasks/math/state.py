"""The state of a math episode between steps, and its encoding as compact JSON bytes.

The state holds the reference answer: it goes between services, never into a prompt or a sandbox.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from troupe_tasks.math.row import MathRow

MAX_LOG = 8


@dataclass(frozen=True, slots=True)
class Attempt:
    """An agent's last attempt.

    ``marks`` are the reward terms as they stand, from 0 to 1. ``text`` is the program or the end
    of the solution; ``output`` is what the program did, as agents may see it.

    Example: ``Attempt("42", {"builds": 1.0, "executes": 1.0, "correct": 0.0}, "print(42)", "42")``.
    """

    answer: str | None = None
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    text: str = ""
    output: str = ""

    @property
    def is_correct(self) -> bool:
        """Whether its answer is the reference."""
        return self.marks.get("correct", 0.0) == 1.0


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode.

    ``fresh`` names the agents that acted since the final one last did; ``log`` holds the latest
    answers as (agent, answer) in the order they were given. ``is_done`` ends the episode.
    """

    row: MathRow
    attempts: Mapping[str, Attempt] = field(default_factory=dict[str, Attempt])
    fresh: tuple[str, ...] = ()
    log: tuple[tuple[str, str | None], ...] = ()
    is_done: bool = False

    def attempt(self, agent: str) -> Attempt:
        """The agent's last attempt, an empty one before its first."""
        return self.attempts.get(agent, Attempt())


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    document = {
        "row": state.row.model_dump(exclude_defaults=True),
        "attempts": {agent: asdict(attempt) for agent, attempt in state.attempts.items()},
        "fresh": state.fresh,
        "log": state.log,
        "is_done": state.is_done,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw: dict[str, Any] = json.loads(data)
    return State(
        row=MathRow.model_validate(raw["row"]),
        attempts={agent: Attempt(**attempt) for agent, attempt in raw["attempts"].items()},
        fresh=tuple(raw["fresh"]),
        log=tuple((agent, answer) for agent, answer in raw["log"]),
        is_done=raw["is_done"],
    )
