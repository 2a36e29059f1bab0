"""Sudoku as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

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
from troupe_tasks.sudoku.generator import draw, split_key
from troupe_tasks.sudoku.grid import EMPTY, name, size_of
from troupe_tasks.sudoku.puzzle import SudokuPuzzle, words

PUZZLE = SudokuPuzzle()

MAX_HOLES = {4: 10, 9: 54}
"""Holes that digging reaches in a reasonable share of the complete grids, for each size."""


class SudokuParams(DrawnPuzzleParams):
    """What kind of grids, and how much one answer may do."""

    size: Literal[4, 9] = Field(default=4, description="Rows, columns and digits: 4 or 9.")
    holes: int = Field(
        default=6, ge=4, le=54, description="Empty cells of a task; at most 10 on a 4x4 grid."
    )
    max_actions: int = Field(default=6, ge=1, le=81, description="Cells in one answer, at most.")

    @model_validator(mode="after")
    def _can_be_dug(self) -> Self:
        if self.holes > MAX_HOLES[self.size]:
            raise ValueError(
                f"holes must be at most {MAX_HOLES[self.size]} for size {self.size}, "
                f"got {self.holes}"
            )
        return self


class Sudoku:
    """A tool agent tries digits out, then a planner fills; the grid must become complete.

    The planner alone is a valid team too: its observation then has no tool result.

    Example: ``Sudoku(SudokuParams(size=9, holes=30)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "sudoku"
    agents: ClassVar[tuple[str, ...]] = (TOOL, PLANNER)
    Params: ClassVar[type[BaseModel]] = SudokuParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        TOOL: LOCAL_TERMS,
        PLANNER: LOCAL_TERMS,
    }
    return_bound: ClassVar[float] = RETURN_BOUND

    def __init__(self, params: BaseModel) -> None:
        self._params = SudokuParams.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="use fewer holes")

    def environment(self) -> PuzzleEnvironment:
        """The family's judge."""
        return PuzzleEnvironment(PUZZLE, self._params, image_prompt(PUZZLE, self._params))

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The right digits of wrong cells, then of empty ones, from the top left."""
        now = decode_state(state)
        complete = now.instance.partition("/")[2]
        limit = self._params.max_actions
        return demonstrate(PUZZLE, now, agent, lambda board: _missing(board, complete), limit)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any digit for each empty cell; for any cell where none is empty."""
        now = decode_state(state)
        givens = PUZZLE.start(now.instance)
        size = size_of(givens)
        open_cells = [cell for cell, digit in enumerate(givens) if digit == EMPTY]
        empty = [cell for cell in open_cells if now.board[cell] == EMPTY] or open_cells
        chosen = sorted(rng.sample(empty, min(len(empty), self._params.max_actions)))
        actions = [f"{name(size, cell)} {rng.randint(1, size)}" for cell in chosen]
        return write_answer(PUZZLE.keywords[agent], actions)

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        numbers = [str(n) for n in range(1, max(9, self._params.max_actions) + 1)]
        return [*PUZZLE.keywords.values(), *WORDS, *words(self._params.size), *numbers]

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may show: the solution, as text and as drawn; of an image, any word."""
        instance = task.payload.decode()
        complete = instance.partition("/")[2]
        board = told_in_words(PUZZLE, instance) if self._params.observe == "image" else []
        return [complete, PUZZLE.drawing("", complete), *board]

    def split_key(self, task: Task) -> str:
        """4x4: the givens up to symmetry; 9x9: the complete grid, turned or renamed."""
        givens, _, complete = task.payload.decode().partition("/")
        return split_key(givens, complete)

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        instance = draw(rng, split, size=self._params.size, holes=self._params.holes)
        return instance.encode() if instance else None


def _missing(board: str, complete: str) -> list[str]:
    size = size_of(board)
    cells = [cell for cell, digit in enumerate(board) if digit != complete[cell]]
    cells.sort(key=lambda cell: board[cell] == EMPTY)
    return [f"{name(size, cell)} {complete[cell]}" for cell in cells]
