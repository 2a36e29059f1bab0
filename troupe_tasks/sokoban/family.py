"""Sokoban as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from pydantic import BaseModel, Field

from troupe.tasks.family import Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.puzzles import (
    LOCAL_TERMS,
    RETURN_BOUND,
    DrawnPuzzleParams,
    PuzzleEnvironment,
    image_prompt,
)
from troupe_tasks.puzzles.answers import write_answer
from troupe_tasks.puzzles.demonstration import demonstrate
from troupe_tasks.puzzles.images import told_in_words
from troupe_tasks.puzzles.prompts import WORDS
from troupe_tasks.puzzles.puzzle import PLANNER, TOOL
from troupe_tasks.puzzles.state import decode_state
from troupe_tasks.sokoban.generator import draw, split_key
from troupe_tasks.sokoban.puzzle import SokobanPuzzle, words
from troupe_tasks.sokoban.room import MAX_BOXES, MAX_SIZE, MOVES, read_map
from troupe_tasks.sokoban.solver import solution

PUZZLE = SokobanPuzzle()


class SokobanParams(DrawnPuzzleParams):
    """What kind of rooms, and how much one answer may do."""

    size: int = Field(
        default=6,
        ge=6,
        le=MAX_SIZE,
        description="Cells per side of the square map, with its border.",
    )
    boxes: int = Field(default=1, ge=1, le=MAX_BOXES, description="Boxes, and as many goals.")
    min_pushes: int = Field(default=2, ge=1, le=40, description="Least pushes of a task.")
    wall_share: float = Field(
        default=0.15, ge=0.1, le=0.5, description="Least share of walls inside the border."
    )
    max_actions: int = Field(default=12, ge=1, le=64, description="Moves in one answer, at most.")


class Sokoban:
    """A tool agent tries moves out, then a planner plays; the boxes must reach the goals.

    The planner alone is a valid team too: its observation then has no tool result.

    Example: ``Sokoban(SokobanParams(boxes=2)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "sokoban"
    agents: ClassVar[tuple[str, ...]] = (TOOL, PLANNER)
    Params: ClassVar[type[BaseModel]] = SokobanParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        TOOL: LOCAL_TERMS,
        PLANNER: LOCAL_TERMS,
    }
    return_bound: ClassVar[float] = RETURN_BOUND

    def __init__(self, params: BaseModel) -> None:
        self._params = SokobanParams.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        hint = "use fewer boxes, a larger map, a smaller wall_share or a smaller min_pushes"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint, max_draws=5000)

    def environment(self) -> PuzzleEnvironment:
        """The family's judge."""
        return PuzzleEnvironment(PUZZLE, self._params, image_prompt(PUZZLE, self._params))

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The solution with fewest pushes; any moves where the room is lost or too large."""
        now = decode_state(state)
        if solution(now.board) is None:
            return self.random_action(state, agent, rng)
        limit = self._params.max_actions
        return demonstrate(PUZZLE, now, agent, lambda board: solution(board) or "", limit)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """As many moves as an answer may have, each in any direction."""
        moves = rng.choices(MOVES, k=self._params.max_actions)
        return write_answer(PUZZLE.keywords[agent], moves)

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        numbers = [str(number) for number in range(1, self._params.max_actions + 1)]
        return [
            *PUZZLE.keywords.values(),
            *WORDS,
            *words(self._params.size),
            *dict.fromkeys([*numbers, *(str(digit) for digit in range(1, 10))]),
        ]

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may say where the board is an image."""
        if self._params.observe == "text":
            return ()
        return told_in_words(PUZZLE, task.payload.decode())

    def split_key(self, task: Task) -> str:
        """The room's walls and goals, however turned or mirrored; not its boxes."""
        return split_key(read_map(task.payload.decode())[0])

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        params = self._params
        board = draw(
            rng,
            split,
            size=params.size,
            num_boxes=params.boxes,
            wall_share=params.wall_share,
            min_pushes=params.min_pushes,
        )
        return board.encode() if board else None
