"""The task as Troupe loads it: parameters, tasks, demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from troupe.tasks.family import Split
from troupe.tasks.splits import DrawnTaskset, split_of_key

from add_and_double import state as states
from add_and_double import text
from add_and_double.environment import RETURN_BOUND, Environment
from add_and_double.state import ADDER, AGENTS, DOUBLER, State, num_left, other

_TERMS = {"format": 0.1, "useful": 0.2}


class Params(BaseModel):
    """What ``task.params`` of a job spec may hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the task generator.")
    max_target: int = Field(default=200, ge=30, le=2000, description="Largest target number.")


class AddAndDouble:
    """An adder and a doubler must make one number meet a target.

    Example: ``AddAndDouble(Params(max_target=60)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "add_and_double"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = Params
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {ADDER: _TERMS, DOUBLER: _TERMS}
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": list(AGENTS),
        "max_turns": 16,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = Params.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        """Tasks without end; a hash of the instance decides which split owns it."""
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="raise max_target")

    def environment(self) -> Environment:
        """The judge."""
        return Environment()

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """An action of a shortest way, drawn at random among equals."""
        now = states.decode(state)
        good = [choice for choice in states.choices(agent) if _steps_after(now, agent, choice) >= 0]
        if now.is_over or not good:
            return self.random_action(state, agent, rng)
        least = min(_steps_after(now, agent, choice) for choice in good)
        best = [choice for choice in good if _steps_after(now, agent, choice) == least]
        return text.answer(agent, rng.choice(best))

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any well-formed answer."""
        return text.answer(agent, rng.choice(states.choices(agent)))

    def vocabulary(self) -> Sequence[str]:
        """Words that a small made-here tokenizer keeps as single tokens."""
        return text.words(self._params.max_target)

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        target = rng.randint(20, self._params.max_target)
        number = rng.randint(1, target // 2)
        if split_of_key(f"{number} {target}") != split:
            return None
        return states.encode(State(number, target))


def _steps_after(now: State, agent: str, choice: int) -> int:
    """Fewest actions after ``choice``, or -1 when the target is then out of reach."""
    after = states.apply(now, agent, choice)
    left = num_left(after.number, after.target, other(agent))
    return -1 if left is None else left
