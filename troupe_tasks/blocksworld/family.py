"""Blocksworld as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from pydantic import BaseModel, Field

from troupe.tasks.family import Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.blocksworld.generator import draw, unnamed
from troupe_tasks.blocksworld.puzzle import BlocksworldPuzzle, words
from troupe_tasks.blocksworld.stacks import MAX_BLOCKS, TABLE, shortest_plan, supports
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

PUZZLE = BlocksworldPuzzle()


class BlocksworldParams(DrawnPuzzleParams):
    """How many blocks, how far the goal is, and how much one answer may do."""

    size: int = Field(default=5, ge=3, le=MAX_BLOCKS, description="Blocks.")
    min_moves: int = Field(default=2, ge=1, le=20, description="Least moves of a task.")
    max_actions: int = Field(default=4, ge=1, le=36, description="Moves in one answer, at most.")


class Blocksworld:
    """A tool agent tries moves out, then a planner moves; the stacks must become the goal's.

    The planner alone is a valid team too: its observation then has no tool result.

    Example: ``Blocksworld(BlocksworldParams(size=6)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "blocksworld"
    agents: ClassVar[tuple[str, ...]] = (TOOL, PLANNER)
    Params: ClassVar[type[BaseModel]] = BlocksworldParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        TOOL: LOCAL_TERMS,
        PLANNER: LOCAL_TERMS,
    }
    return_bound: ClassVar[float] = RETURN_BOUND

    def __init__(self, params: BaseModel) -> None:
        self._params = BlocksworldParams.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        hint = "use more blocks (a larger size) or a smaller min_moves"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def environment(self) -> PuzzleEnvironment:
        """The family's judge."""
        return PuzzleEnvironment(PUZZLE, self._params, image_prompt(PUZZLE, self._params))

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A shortest plan."""
        now = decode_state(state)
        goal = now.instance.partition(">")[2]

        def plan(board: str) -> list[str]:
            return [" ".join(move) for move in shortest_plan(board, goal)]

        return demonstrate(PUZZLE, now, agent, plan, self._params.max_actions)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """As many moves as an answer may have, each of any block onto any other or the table."""
        blocks = sorted(supports(decode_state(state).board))
        actions: list[str] = []
        for block in rng.choices(blocks, k=self._params.max_actions):
            target = rng.choice([TABLE, *(other for other in blocks if other != block)])
            actions.append(f"{block} {target}")
        return write_answer(PUZZLE.keywords[agent], actions)

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        numbers = [str(number) for number in range(1, self._params.max_actions + 1)]
        return list(
            dict.fromkeys([*PUZZLE.keywords.values(), *WORDS, *words(self._params.size), *numbers])
        )

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may say where the board is an image."""
        if self._params.observe == "text":
            return ()
        return told_in_words(PUZZLE, task.payload.decode())

    def split_key(self, task: Task) -> str:
        """Both worlds, whatever the blocks are called."""
        first, _, goal = task.payload.decode().partition(">")
        return unnamed(first, goal)

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        instance = draw(rng, split, size=self._params.size, min_moves=self._params.min_moves)
        return instance.encode() if instance else None
