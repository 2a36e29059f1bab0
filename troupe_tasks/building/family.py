"""Build as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset
from troupe.tasks.family import Split, Task, Taskset
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.building import script, text
from troupe_tasks.building.blueprint import AIR, Blueprint
from troupe_tasks.building.environment import RETURN_BOUND, BuildEnvironment, decode_state
from troupe_tasks.building.generator import MATERIALS, Shape, canonical, drawn

AGENTS = ("builder_1", "builder_2")
_TERMS = {"format": 0.1, "legal": 0.1, "right": 0.3}


class BuildParams(BaseModel):
    """Which blueprints, and how many builders share the work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the blueprints.")
    size: int = Field(default=5, ge=3, le=8, description="Cells a side of a site, at most.")
    shapes: tuple[Shape, ...] = Field(
        default=("house", "pyramid", "bridge", "steps"),
        min_length=1,
        description="Kinds of blueprints; wall, two rows of `size` cells, is the least one.",
    )
    max_commands: int = Field(default=8, ge=1, le=64, description="Commands in one answer.")
    style: text.Style = Field(default="compact", description="compact or verbose.")
    is_solo: bool = Field(
        default=False, description="One builder with all materials; else two with different ones."
    )
    data: Path | dict[Split, Path] | None = Field(
        default=None,
        description="Prepared blueprints (a folder, a file, or a file a split); none: drawn ones.",
    )


class Build:
    """Two builders raise one blueprint, each with materials that the other lacks.

    Example: ``Build(BuildParams(size=4)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "build"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = BuildParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = dict.fromkeys(AGENTS, _TERMS)
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": list(AGENTS),
        "max_turns": 4,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = BuildParams.model_validate(params.model_dump())
        if self._params.is_solo:
            # What an instance declares hides the class's.
            alone = AGENTS[:1]
            vars(self).update(
                agents=alone,
                local_terms=dict.fromkeys(alone, _TERMS),
                usual_workflow={"kind": "turn_based", "order": list(alone), "max_turns": 4},
            )

    def taskset(self) -> Taskset:
        """Blueprints without end in each split, or the prepared ones."""
        params = self._params
        if params.data is not None:
            return PreparedTaskset(SplitRows(params.data, Blueprint))
        return DrawnTaskset(
            self.name,
            params.seed,
            lambda rng, split: drawn(rng, params.size, split, params.shapes),
            hint="use a larger size",
        )

    def environment(self) -> BuildEnvironment:
        """The family's judge."""
        return BuildEnvironment(self.agents, self._params.max_commands, self._params.style)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The largest boxes that the builder can place now."""
        decoded, blueprint = decode_state(state)
        usable = self._usable(blueprint, agent)
        return script.demonstration(blueprint, decoded.world, usable, self._params.max_commands)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Random boxes of the builder's materials."""
        _, blueprint = decode_state(state)
        usable = self._usable(blueprint, agent)
        return script.random_commands(blueprint, usable, self._params.max_commands, rng)

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style, and of commands."""
        numbers = [str(number) for number in range(65)]
        fixed = ["target", "stands", "stock", "refused", "yours", "fill", "setblock", "air", "|"]
        return [*fixed, "/", AIR, *MATERIALS, *MATERIALS.values(), *AGENTS, *numbers]

    def split_key(self, task: Task) -> str:
        """The blueprint, however turned, mirrored or named its materials."""
        return canonical(Blueprint.model_validate_json(task.payload).layers)

    def _usable(self, blueprint: Blueprint, agent: str) -> str:
        return blueprint.usable(self.agents.index(agent), len(self.agents))
