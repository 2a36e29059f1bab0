"""A guided walk as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Self

from pydantic import BaseModel, Field, model_validator

from troupe.tasks.family import HiddenTexts, Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.drawing import ObserveParams
from troupe_tasks.guided_walk import state as states
from troupe_tasks.guided_walk import text
from troupe_tasks.guided_walk.environment import RETURN_BOUND, GuidedWalkEnvironment
from troupe_tasks.guided_walk.maps import draw, nearer
from troupe_tasks.guided_walk.state import GuidedState
from troupe_tasks.plan_path.grid import MOVES, Cell, name, split_key, split_of
from troupe_tasks.plan_path.state import decode_instance, encode_instance


class GuidedWalkParams(ObserveParams):
    """What kind of maps, how far the goal is, and how much the scout may say."""

    seed: int = Field(default=0, description="Seed of the task generator.")
    size: int = Field(default=5, ge=4, le=9, description="Cells per side of the square map.")
    num_walls: int = Field(default=7, ge=1, description="Cells that are walls.")
    min_distance: int = Field(default=2, ge=1, description="Least number of moves to the goal.")
    max_distance: int = Field(default=5, ge=1, description="Largest number of moves to the goal.")
    min_goals: int = Field(
        default=5,
        ge=1,
        description="Least number of cells that could be the goal, for all that map and start say: "
        "a scout without a walker's knowledge is right one time in so many, at best.",
    )
    message_words: int = Field(
        default=5, ge=1, le=32, description="Words of one message that reach the walker."
    )
    view: text.View = Field(
        default="map",
        description="What the scout sees: map, all walls; beside, the open cells beside the walker "
        "and nothing else.",
    )
    style: text.Style = Field(
        default="compact", description="compact: one line; verbose: with rules."
    )

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if self.num_walls > self.size**2 // 2:
            raise ValueError(
                f"num_walls must be at most {self.size**2 // 2} on a map of size {self.size}, "
                f"got {self.num_walls}"
            )
        if self.min_distance > self.max_distance:
            raise ValueError(
                f"min_distance {self.min_distance} is above max_distance {self.max_distance}"
            )
        if self.view == "beside" and self.observe == "image":
            raise ValueError("view 'beside' has no image: use observe 'text', or view 'map'")
        return self


class GuidedWalk:
    """The scout sees the walls and the walker, the walker knows the goal: neither can do without.

    Each turn the scout sends a bounded message, then the walker takes one step or stops.

    Example: ``GuidedWalk(GuidedWalkParams(size=5)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "guided_walk"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = GuidedWalkParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.SCOUT: {"position": 0.5, "moves": 0.5},
        text.WALKER: {"progress": 1.0},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {"order": list(agents), "max_turns": 6}

    def __init__(self, params: BaseModel) -> None:
        self._params = GuidedWalkParams.model_validate(params.model_dump())

    @property
    def usual_warm_start(self) -> Mapping[str, Any]:
        """Beside the walker little is to be learned: a few demonstrations, all of them right."""
        if self._params.view == "map":
            return {}
        return {"num_careful_steps": 36, "num_careless_steps": 0, "solo_share": 0.0}

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        hint = "use a larger map, fewer walls or a smaller min_goals"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def environment(self) -> GuidedWalkEnvironment:
        """The family's judge."""
        params = self._params
        return GuidedWalkEnvironment(
            params.style, params.message_words, params.image_cell_px, params.view
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The truth of the scout; a walker's best step, from the goal and the message alone."""
        now = states.decode_state(state)
        if agent == text.SCOUT:
            return text.write_report(name(now.at), now.grid.exits(now.at))
        return _step_by_message(now, rng)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A report of any cell with any moves; any step."""
        if agent == text.WALKER:
            return rng.choice((*MOVES, text.STOP))
        size = self._params.size
        cell = rng.randrange(size), rng.randrange(size)
        return text.write_report(name(cell), [move for move in MOVES if rng.random() < 0.5])

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        return text.words(self._params.size, self._params.view)

    def hidden_texts(self, task: Task) -> HiddenTexts:
        """What each seat must never read: the goal; the walls and where the walker begins."""
        first = states.first_state(decode_instance(task.payload))
        goal, start = name(first.goal), name(first.start)
        walls = text.wall_names(first)
        of_map = [" ".join(walls), ", ".join(walls), f"at {start}", f"at: {start}"]
        of_goal = [f"goal {goal}", f"Goal: {goal}", "heard"]
        sees = self._params.observe == "image"
        return {text.SCOUT: [*of_goal, *of_map] if sees else of_goal, text.WALKER: of_map}

    def split_key(self, task: Task) -> str:
        """The map, whatever its start and goal, however turned or mirrored."""
        return split_key(decode_instance(task.payload).grid)

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        params = self._params
        distances = params.min_distance, params.max_distance
        instance = draw(rng, params.size, params.num_walls, distances, params.min_goals)
        if instance is None or split_of(instance.grid) != split:
            return None
        return encode_instance(instance)


def _step_by_message(now: GuidedState, rng: Random) -> str:
    """What a walker does that believes the message; without a cell in it, it can only guess."""
    report = text.read_report(now.message or "")
    at = _cell_of(report.cell)
    if at is None:
        return rng.choice(tuple(MOVES))
    if at == now.goal:
        return text.STOP
    towards = nearer(at, now.goal)
    open_moves = sorted(report.moves)
    return rng.choice([move for move in towards if move in open_moves] or open_moves or towards)


def _cell_of(cell_name: str | None) -> Cell | None:
    return None if cell_name is None else (int(cell_name[1]) - 1, ord(cell_name[0]) - ord("a"))
