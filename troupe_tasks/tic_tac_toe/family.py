"""Tic-Tac-Toe as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe.tasks.family import Task
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe import state as states
from troupe_tasks.tic_tac_toe import text
from troupe_tasks.tic_tac_toe.environment import RETURN_BOUND, Opponent, TicTacToeEnvironment
from troupe_tasks.tic_tac_toe.openings import First, TicTacToeTaskset

_LOCAL_TERMS = {"format": 0.1, "legal": 0.5, "value": 1.0, "outcome": 1.0}


class TicTacToeParams(BaseModel):
    """Where games begin, and against whom."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the order of tasks and of the opponent.")
    opening_marks: int = Field(
        default=2, ge=1, le=6, description="Marks on the board when play begins."
    )
    first: First = Field(
        default="either",
        description="Who moves first: each seat in half of the tasks, or always player_1.",
    )
    opponent: Opponent = Field(
        default="none",
        description="none: self-play, both seats are agents; random (uniform over legal moves) or "
        "optimal (minimax, random among equals): the environment plays player_2.",
    )
    style: text.Style = Field(
        default="compact", description="compact: one line; verbose: with rules."
    )


class TicTacToe:
    """Two seats, perfect information, opposite results.

    With a scripted ``opponent`` the only agent is ``player_1``.

    Example: ``TicTacToe(TicTacToeParams(opening_marks=3)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "tic_tac_toe"
    agents: ClassVar[tuple[str, ...]] = states.SEATS
    Params: ClassVar[type[BaseModel]] = TicTacToeParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = dict.fromkeys(
        states.SEATS, _LOCAL_TERMS
    )
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "self_play",
        "order": list(states.SEATS),
        "max_turns": 5,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = TicTacToeParams.model_validate(params.model_dump())
        if self._params.opponent != "none":
            seats = states.SEATS[:1]
            # The seats depend on the parameters: what an instance declares hides the class's.
            vars(self).update(
                agents=seats,
                local_terms=dict.fromkeys(seats, _LOCAL_TERMS),
                usual_workflow={**self.usual_workflow, "order": list(seats)},
            )

    def taskset(self) -> TicTacToeTaskset:
        """The family's tasks."""
        params = self._params
        return TicTacToeTaskset(params.seed, params.opening_marks, params.first)

    def split_key(self, task: Task) -> str:
        """The opening's board, however turned or mirrored."""
        return boards.canonical(states.decode(task.payload).board)

    def environment(self) -> TicTacToeEnvironment:
        """The family's judge."""
        return TicTacToeEnvironment(self._params.opponent, self._params.style)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A perfect move, random among equals."""
        cells = boards.best_cells(states.decode(state).board)
        return text.answer(rng.choice(cells)) if cells else text.KEYWORD

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any legal move, uniformly."""
        cells = boards.free(states.decode(state).board)
        return text.answer(rng.choice(cells)) if cells else text.KEYWORD

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        return text.WORDS
