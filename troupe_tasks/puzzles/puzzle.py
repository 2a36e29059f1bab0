"""The protocol of one puzzle: rules, a distance to its solution, and words.

Owns the seam between a puzzle and the environment that all puzzles share. Instances, boards and
actions are text in the puzzle's own notation, so a state is readable and small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Style = Literal["compact", "verbose"]

TOOL, PLANNER = "tool", "planner"


class PuzzleParams(BaseModel):
    """Parameters that every puzzle has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the task generator.")
    max_actions: int = Field(default=8, ge=1, le=81, description="Actions in one answer, at most.")
    style: Style = Field(default="compact", description="compact: one line; verbose: with rules.")


@dataclass(frozen=True, slots=True)
class Played:
    """What a list of actions does: the board after it, and the actions that broke a rule.

    ``refused`` counts actions from 1; a refused action changes nothing.
    """

    board: str
    refused: tuple[int, ...]


class Puzzle(Protocol):
    """Rules and words of one puzzle. Every method is a pure function.

    ``keywords`` gives the word that each agent's answer begins with. ``item`` is the regular
    expression of one action, whose groups, joined by spaces, are the action.
    """

    title: ClassVar[str]
    keywords: ClassVar[Mapping[str, str]]
    item: ClassVar[str]

    def start(self, instance: str) -> str:
        """The first board."""
        ...

    def play(self, instance: str, board: str, actions: Sequence[str]) -> Played:
        """Do ``actions`` in order; a board that is solved already does not change."""
        ...

    def distance(self, instance: str, board: str) -> int | None:
        """Work left: 0 only when solved, None when it can no longer be solved.

        Never fails, and does not depend on the way to ``board``.
        """
        ...

    def facts(self, instance: str, board: str) -> Sequence[str]:
        """The board as words of the compact style."""
        ...

    def outcome(self, instance: str, played: Played) -> Sequence[str]:
        """What the tool's trial led to, as words of the compact style."""
        ...

    def sentences(self, instance: str, board: str) -> Sequence[str]:
        """The board as lines of the verbose style."""
        ...

    def outcome_sentence(self, instance: str, played: Played) -> str:
        """What the tool's trial led to, as one sentence of the verbose style."""
        ...

    def rules(self, agent: str, max_actions: int) -> str:
        """The system message of the verbose style."""
        ...

    def drawing(self, instance: str, board: str) -> str:
        """The board for people to read, one line per row."""
        ...
