"""Repair as a task family: its parameters, its tasks and its demonstrations."""

import json
import keyword
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Environment, Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.repair import script
from troupe_tasks.repair.edits import MIDDLE, REPLACE, SEARCH
from troupe_tasks.repair.environment import RETURN_BOUND, RepairEnvironment
from troupe_tasks.repair.instance import drawn, encode_instance, instance_of
from troupe_tasks.repair.state import decode_state
from troupe_tasks.repair.text import AGENTS, FIXER, READER

MIN_SECRET_CHARS = 12


class RepairParams(BaseModel):
    """Which faults, and what a test may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the faults.")
    is_solo: bool = Field(
        default=False, description="One agent, fixer, reads and edits; else reader and fixer."
    )
    budget_s: float = Field(
        default=20.0, gt=0.0, le=600.0, description="Wall time for the tests of one edit."
    )


class Repair:
    """A reader sees the files, a fixer edits what it is shown, hidden tests judge.

    Example: ``Repair(RepairParams()).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "repair"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = RepairParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        READER: {"format": 0.1, "valid": 0.1, "located": 0.3},
        FIXER: {"format": 0.1, "valid": 0.1},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": [READER, FIXER],
        "max_turns": 4,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = RepairParams.model_validate(params.model_dump())
        if self._params.is_solo:
            # What an instance declares hides the class's.
            vars(self).update(
                agents=(FIXER,),
                local_terms={FIXER: {"format": 0.1, "valid": 0.1}},
                usual_workflow={"kind": "turn_based", "order": [FIXER], "max_turns": 6},
            )

    def taskset(self) -> DrawnTaskset:
        """Faults without end; each package belongs to one split."""
        return DrawnTaskset(self.name, self._params.seed, _payload, hint="use another seed")

    def environment(self) -> Environment:
        """Refused: programs are judged in a sandbox only."""
        raise InvalidArgumentError(
            "task 'repair' runs programs; use environment_in(sandbox), as "
            "troupe.tasks.registry.make_environment does.",
            pointer="/task/name",
        )

    def environment_in(self, sandbox: Sandbox) -> RepairEnvironment:
        """The family's judge, running programs in ``sandbox``."""
        return RepairEnvironment(self.agents, sandbox, self._params.budget_s)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The reader shows the faulty lines, the fixer puts the right text back."""
        decoded = decode_state(state)
        return script.shows_fault(decoded) if agent == READER else script.mends_fault(decoded)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Lines anywhere, and one small change anywhere."""
        decoded = decode_state(state)
        if agent == READER:
            return script.random_reading(decoded, rng)
        return script.random_edit(decoded, rng)

    def hidden_texts(self, task: Task) -> list[str]:
        """The calls of hidden tests."""

        instance = instance_of(json.loads(task.payload))
        calls = [call for call, _, _ in (*instance.failing, *instance.passing)]
        return [call for call in calls if len(call) >= MIN_SECRET_CHARS]

    def vocabulary(self) -> Sequence[str]:
        """Python's keywords, commands, and the marks of edits."""
        marks = [part for mark in (SEARCH, MIDDLE, REPLACE) for part in mark.split()]
        return [*keyword.kwlist, "search", "open", "show", "note", "wait", *dict.fromkeys(marks)]


def _payload(rng: Random, split: Split) -> bytes | None:
    instance = drawn(rng, split)
    return None if instance is None else encode_instance(instance)
