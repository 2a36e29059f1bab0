"""Proposed puzzles as a task family: a proposer and a solver who evolve together."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from troupe.tasks.family import Split, Task
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.proposed import text
from troupe_tasks.proposed.countdown import MAX_NUMBERS, solution_of, targets_of
from troupe_tasks.proposed.environment import ProposedEnvironment
from troupe_tasks.proposed.state import State, decode_state, encode_state

_TRIES = 64


class ProposedParams(BaseModel):
    """What puzzles are posed, and how often each is attempted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the tasks.")
    attempts: int = Field(
        default=4, ge=1, le=32, description="Attempts of the solver at each proposed puzzle."
    )
    numbers: int = Field(
        default=3, ge=2, le=MAX_NUMBERS, description="Numbers of a puzzle, each used once."
    )
    pool: int = Field(default=6, ge=2, le=6, description="Numbers that the proposer chooses from.")
    largest_number: int = Field(default=20, ge=9, le=99, description="Largest number of a pool.")
    largest_target: int = Field(default=99, ge=4, le=999, description="Largest target.")
    style: text.Style = Field(
        default="compact", description="compact: one line; verbose: with rules."
    )

    @model_validator(mode="after")
    def _can_choose(self) -> Self:
        if self.pool < self.numbers:
            raise ValueError(f"pool must be at least numbers, {self.numbers}; got {self.pool}")
        return self


class Proposed:
    """A proposer poses a number puzzle, a solver attempts it ``attempts`` times.

    Held-out tasks are puzzles drawn by code and attempted once: they measure the solver, whatever
    the proposer has come to. No held-out puzzle can be posed in training.

    Example: ``Proposed(ProposedParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "proposed"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = ProposedParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.PROPOSER: {"valid": 0.1, "difficulty": 1.0},
        text.SOLVER: {"right": 1.0, "format": 0.1},
    }
    return_bound: ClassVar[float] = 0.0
    usual_workflow: Mapping[str, Any] = {}

    def __init__(self, params: BaseModel) -> None:
        self._params = ProposedParams.model_validate(params.model_dump())
        self.usual_workflow = {
            "kind": "self_play",
            "order": list(text.AGENTS),
            "max_turns": self._params.attempts,
        }
        self.needed_turns = self._params.attempts

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        hint = "use a larger largest_number"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def environment(self) -> ProposedEnvironment:
        """The family's judge."""
        params = self._params
        return ProposedEnvironment(params.numbers, params.largest_target, params.style)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A puzzle that can be solved, drawn at random; the solution of the solver's."""
        now = decode_state(state)
        if agent == text.SOLVER:
            return text.made(solution_of(now.numbers, now.target) or "0")
        return text.posed(*self._drawn(rng, now.pool)) if now.pool else "pose"

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any numbers of the pool with any target; any expression of the solver's numbers."""
        now = decode_state(state)
        if agent == text.PROPOSER:
            pool = now.pool or (1, 1, 1, 1)
            numbers = rng.sample(pool, min(len(pool), self._params.numbers))
            return text.posed(numbers, rng.randint(1, self._params.largest_target))
        numbers = list(now.numbers) or [1]
        rng.shuffle(numbers)
        words = [str(numbers[0])]
        for number in numbers[1:]:
            words += [rng.choice("+-*"), str(number)]
        return text.made(" ".join(words))

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        largest = max(self._params.largest_number, self._params.largest_target)
        return [*text.WORDS, *map(str, range(largest + 1))]

    def split_key(self, task: Task) -> str:
        """The numbers that a task's puzzles are of: a pool, or a held-out puzzle's."""
        now = decode_state(task.payload)
        return _key(now.pool or now.numbers)

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may show: the solution of a held-out puzzle."""
        now = decode_state(task.payload)
        solution = solution_of(now.numbers, now.target) if now.numbers else None
        return [solution] if solution else []

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        params = self._params
        if split == "train":
            pool = self._drawn_pool(rng)
            return encode_state(State(pool, params.attempts)) if pool else None
        numbers = tuple(
            sorted(rng.randint(1, params.largest_number) for _ in range(params.numbers))
        )
        targets = targets_of(numbers, params.largest_target)
        if split_of_key(_key(numbers)) != split or not targets:
            return None
        return encode_state(State((), 1, numbers, rng.choice(targets)))

    def _drawn_pool(self, rng: Random) -> tuple[int, ...] | None:
        """A pool of which no puzzle's numbers are held out; None where a draw leads to none."""
        pool: list[int] = []
        while len(pool) < self._params.pool:
            for _ in range(_TRIES):
                number = rng.randint(1, self._params.largest_number)
                rest = combinations(pool, self._params.numbers - 1)
                if all(split_of_key(_key((*few, number))) == "train" for few in rest):
                    pool.append(number)
                    break
            else:
                return None
        return tuple(sorted(pool))

    def _drawn(self, rng: Random, pool: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Numbers of the pool, and a target that they can make."""
        numbers = tuple(sorted(rng.sample(pool, self._params.numbers)))
        for _ in range(_TRIES):
            if targets := targets_of(numbers, self._params.largest_target):
                return numbers, rng.choice(targets)
            numbers = tuple(sorted(rng.sample(pool, self._params.numbers)))
        return numbers, self._params.largest_target


def _key(numbers: Sequence[int]) -> str:
    """What one split owns: the numbers of a puzzle, whatever their order and its target."""
    return " ".join(map(str, sorted(numbers)))
