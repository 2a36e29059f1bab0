"""Plan-Path as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from troupe.tasks.family import Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.drawing import ObserveParams
from troupe_tasks.plan_path import image, text
from troupe_tasks.plan_path import state as states
from troupe_tasks.plan_path.environment import RETURN_BOUND, PlanPathEnvironment
from troupe_tasks.plan_path.grid import (
    MOVES,
    distances,
    draw,
    shortest_moves,
    split_key,
    split_of,
    walk,
)

SEARCH_SHARE = 0.5
"""Share of the tool's demonstrations that search, where it can; the others simulate."""

_LOCAL_TERMS = {"format": 0.1, "legal": 0.1, "progress": 0.8}


class PlanPathParams(ObserveParams):
    """What kind of maps, and how much one answer may do."""

    seed: int = Field(default=0, description="Seed of the task generator.")
    size: int = Field(default=10, ge=4, le=26, description="Cells per side of the square map.")
    block_ratio: float = Field(
        default=0.22, ge=0.1, le=0.5, description="Share of cells that are walls."
    )
    min_distance: int = Field(
        default=2, ge=1, description="Least number of moves from start to goal."
    )
    max_actions: int = Field(default=8, ge=1, le=64, description="Moves in one answer, at most.")
    search_radius: int = Field(
        default=0,
        ge=0,
        description="Gives the tool agent a search for the way to a cell at most so many moves "
        "off; 0 leaves it the simulation only.",
    )
    style: text.Style = Field(
        default="compact", description="compact: one line; verbose: with rules."
    )


class PlanPath:
    """A tool agent tries moves out, then a planner walks; the team must reach the goal.

    The planner alone is a valid team too: its observation then has no tool result.

    Example: ``PlanPath(PlanPathParams(size=6)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "plan_path"
    agents: ClassVar[tuple[str, ...]] = (text.TOOL, text.PLANNER)
    Params: ClassVar[type[BaseModel]] = PlanPathParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.TOOL: _LOCAL_TERMS,
        text.PLANNER: _LOCAL_TERMS,
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {"order": list(agents), "max_turns": 4}

    def __init__(self, params: BaseModel) -> None:
        self._params = PlanPathParams.model_validate(params.model_dump())

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        hint = "use a larger map or a smaller min_distance"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def environment(self) -> PlanPathEnvironment:
        """The family's judge."""
        params = self._params
        return PlanPathEnvironment(
            params.max_actions, params.style, params.search_radius, params.image_cell_px
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A shortest way on; the planner keeps what the tool tried when that was one."""
        now = states.decode_state(state)
        if agent == text.PLANNER and now.trial and _is_shortest(now, now.trial):
            moves = now.trial.moves
        else:
            moves = shortest_moves(now.grid, now.at, now.goal, rng)
        radius = self._params.search_radius
        if agent == text.TOOL and radius and rng.random() < SEARCH_SHARE:
            return text.search(walk(now.grid, now.at, now.goal, moves[:radius]).end)
        return text.answer(agent, moves[: self._params.max_actions])

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """As many moves as an answer may have, each in any direction."""
        moves = rng.choices(tuple(MOVES), k=self._params.max_actions)
        return text.answer(agent, "".join(moves))

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        return text.words(self._params.size, with_search=self._params.search_radius > 0)

    def hidden_texts(self, task: Task) -> Sequence[str]:
        """What no prompt may say where the map is an image."""
        if self._params.observe == "text":
            return ()
        return image.told_in_words(states.first_state(task.payload))

    def split_key(self, task: Task) -> str:
        """The map, whatever its start and goal, however turned or mirrored."""
        return split_key(states.decode_instance(task.payload).grid)

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        params = self._params
        num_walls = round(params.block_ratio * params.size**2)
        instance = draw(rng, params.size, num_walls, params.min_distance)
        if instance is None or split_of(instance.grid) != split:
            return None
        return states.encode_instance(instance)


def _is_shortest(now: states.State, trial: states.Trial) -> bool:
    closed = now.distance - distances(now.grid, now.goal)[trial.end]
    return 0 < len(trial.moves) == closed
