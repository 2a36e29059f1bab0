"""Carry as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from troupe.tasks.family import Split, Task, Taskset
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.carry import script, text
from troupe_tasks.carry.environment import RETURN_BOUND, CarryEnvironment
from troupe_tasks.carry.physics import view
from troupe_tasks.carry.scenes import AGENTS, KINDS, REACH_Y, Kind, canonical, drawn, scene_of
from troupe_tasks.carry.state import decode_state
from troupe_tasks.drawing import ObserveParams

_TERMS = {"format": 0.1, "reach": 0.1, "near": 0.2}
OPERATOR = "operator"


class CarryParams(ObserveParams):
    """Which scenes, and who commands the robots."""

    seed: int = Field(default=0, description="Seed of the scenes.")
    kinds: tuple[Kind, ...] = Field(default=KINDS, min_length=1, description="Kinds of scenes.")
    style: text.Style = Field(default="compact", description="compact or verbose.")
    is_solo: bool = Field(default=False, description="One operator commands both robots.")


class Carry:
    """Two robots bring one object to a shelf; neither can do it alone.

    Example: ``Carry(CarryParams(kinds=("lift",))).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "carry"
    agents: ClassVar[tuple[str, ...]] = AGENTS
    Params: ClassVar[type[BaseModel]] = CarryParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = dict.fromkeys(AGENTS, _TERMS)
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "turn_based",
        "order": list(AGENTS),
        "max_turns": 24,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = CarryParams.model_validate(params.model_dump())
        if self._params.is_solo:
            # What an instance declares hides the class's.
            vars(self).update(
                agents=(OPERATOR,),
                local_terms={OPERATOR: _TERMS},
                usual_workflow={"kind": "turn_based", "order": [OPERATOR], "max_turns": 24},
            )

    def taskset(self) -> Taskset:
        """Scenes without end in each split."""
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="ask for more kinds")

    def environment(self) -> CarryEnvironment:
        """The family's judge."""
        params = self._params
        return CarryEnvironment(self.agents, params.style, params.image_cell_px)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The line of the scripted robot, or of both."""
        decoded = decode_state(state)
        seen = view(decoded.scene, decoded.physics)
        if agent == OPERATOR:
            both = ((name, script.demonstration(decoded, seen, name)) for name in AGENTS)
            return "\n".join(f"{name}: {command.text()}" for name, command in both)
        return script.demonstration(decoded, seen, agent).text()

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A random line within reach, or one for each robot."""
        scene = decode_state(state).scene
        if agent == OPERATOR:
            both = ((name, script.random_command(scene, name, rng)) for name in AGENTS)
            return "\n".join(f"{name}: {command.text()}" for name, command in both)
        return script.random_command(scene, agent, rng).text()

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style, and of lines."""
        return [*text.WORDS, *map(str, range(-REACH_Y, REACH_Y + 1))]

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may say where cameras show it."""
        if self._params.observe == "text":
            return ()
        first = decode_state(self.environment().reset(task))
        return text.told_places(first, view(first.scene, first.physics))

    def split_key(self, task: Task) -> str:
        """The scene and its mirror image."""
        return canonical(scene_of(task.payload))

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        scene = drawn(rng, self._params.kinds)
        return scene.payload() if split_of_key(canonical(scene)) == split else None
