"""Eight Queens as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Self

from pydantic import BaseModel, Field, model_validator

from troupe.tasks.family import Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.eight_queens.generator import (
    MIN_BOARDS,
    draw,
    has_enough_boards,
    most_closed,
    split_key,
)
from troupe_tasks.eight_queens.puzzle import EightQueensPuzzle, words
from troupe_tasks.eight_queens.squares import MAX_SIZE, NONE, name, nearest, queens, read_instance
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

PUZZLE = EightQueensPuzzle()


class EightQueensParams(DrawnPuzzleParams):
    """What kind of boards, and how much one answer may do."""

    size: int = Field(default=8, ge=4, le=MAX_SIZE, description="Files, rows and queens.")
    given: int = Field(
        default=2, ge=0, le=11, description="Queens that stand from the start; fewer than size."
    )
    closed: int = Field(
        default=4, ge=0, le=40, description="Squares where no queen may stand, in open files."
    )
    max_actions: int = Field(
        default=8, ge=1, le=36, description="Queens placed in one answer, at most."
    )

    @model_validator(mode="after")
    def _leaves_tasks_for_each_split(self) -> Self:
        if self.given >= self.size:
            raise ValueError(f"given must be below size {self.size}, got {self.given}")
        most = most_closed(self.size, self.given)
        if self.closed > most:
            raise ValueError(
                f"closed must be at most {most} with size {self.size} and given {self.given}, "
                f"got {self.closed}"
            )
        if not has_enough_boards(self.size, self.given, self.closed):
            raise ValueError(
                f"there are too few different boards of size {self.size} with {self.given} given "
                f"queens and {self.closed} closed squares to keep {MIN_BOARDS} apart for each "
                "split; raise closed"
            )
        return self


class EightQueens:
    """A tool agent tries queens out, then a planner places them; none may attack another.

    The planner alone is a valid team too: its observation then has no tool result.

    Example: ``EightQueens(EightQueensParams(given=0, closed=6)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "eight_queens"
    agents: ClassVar[tuple[str, ...]] = (TOOL, PLANNER)
    Params: ClassVar[type[BaseModel]] = EightQueensParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        TOOL: LOCAL_TERMS,
        PLANNER: LOCAL_TERMS,
    }
    return_bound: ClassVar[float] = RETURN_BOUND

    def __init__(self, params: BaseModel) -> None:
        self._params = EightQueensParams.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        hint = "close more squares, so that there are enough different boards"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def environment(self) -> PuzzleEnvironment:
        """The family's judge."""
        return PuzzleEnvironment(PUZZLE, self._params, image_prompt(PUZZLE, self._params))

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The way to the solution nearest to the board: wrong queens first, then open files."""
        now = decode_state(state)
        limit = self._params.max_actions
        return demonstrate(PUZZLE, now, agent, lambda b: _to_nearest(now.instance, b), limit)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A queen on any open square of each open file; of any own file where none is open."""
        now = decode_state(state)
        what = read_instance(now.instance)
        open_files = [file for file, row in enumerate(what.given) if row == NONE]
        files = [file for file in open_files if now.board[file] == NONE] or open_files
        chosen = sorted(rng.sample(files, min(len(files), self._params.max_actions)))
        actions: list[str] = []
        for file in chosen:
            rows = [row for row in range(what.size) if (file, row) not in what.closed]
            actions.append(name(file, rng.choice(rows)))
        return write_answer(PUZZLE.keywords[agent], actions)

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        limit = max(self._params.max_actions, self._params.size, 9)
        numbers = [str(number) for number in range(1, limit + 1)]
        return [*PUZZLE.keywords.values(), *WORDS, *words(self._params.size), *numbers]

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may say where the board is an image."""
        if self._params.observe == "text":
            return ()
        return told_in_words(PUZZLE, task.payload.decode())

    def split_key(self, task: Task) -> str:
        """The board, however turned or mirrored."""
        return split_key(read_instance(task.payload.decode()))

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        params = self._params
        instance = draw(rng, split, size=params.size, given=params.given, closed=params.closed)
        return instance.encode() if instance else None


def _to_nearest(instance: str, board: str) -> list[str]:
    goal = nearest(read_instance(instance), board)
    wrong = [square for square in queens(goal) if board[square[0]] != goal[square[0]]]
    wrong.sort(key=lambda square: board[square[0]] == NONE)
    return [name(*square) for square in wrong]
