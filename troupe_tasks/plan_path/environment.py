"""Judges one Plan-Path action on its own copy of the state.

Progress is counted in true (breadth-first) distance, never in straight lines. The team is paid
only for a new least distance, so walking back and forth, or into walls, collects nothing.
"""

from dataclasses import replace

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.plan_path import image, text
from troupe_tasks.plan_path import state as states
from troupe_tasks.plan_path.grid import Walk, distances, name, walk, way
from troupe_tasks.plan_path.state import State, Trial

RETURN_BOUND = 2.0
"""Progress pays less than 1 before the goal is reached, and the goal pays 1 once."""


class PlanPathEnvironment:
    """The pure function of Plan-Path: see ``troupe.tasks.family.Environment``."""

    def __init__(
        self,
        max_actions: int,
        style: text.Style,
        search_radius: int,
        image_cell_px: int | None = None,
    ) -> None:
        self._max_actions = max_actions
        self._style: text.Style = style
        self._search_radius = search_radius
        self._image_cell_px = image_cell_px

    def reset(self, task: Task) -> bytes:
        """The first state: at the start, nothing tried."""
        return states.encode_state(states.first_state(task.payload))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees, at the present position."""
        decoded, rules = states.decode_state(state), None
        if self._style == "verbose":
            rules = text.rules(_known(agent), self._max_actions, self._search_radius)
        if self._image_cell_px:
            return image.observation(decoded, _known(agent), rules, self._image_cell_px)
        return text.observation(decoded, _known(agent), rules)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Try the tool's moves on a copy, or walk the planner's moves for real."""
        before = states.decode_state(state)
        answer = self._read(before, _known(agent), action)
        walked = walk(before.grid, before.at, before.goal, answer.moves)
        if agent == text.TOOL:
            return _tried(before, answer, walked)
        return _walked(before, answer, walked)

    def _read(self, before: State, agent: str, action: str) -> text.Answer:
        """The moves that an action stands for; a search stands for the way that it finds."""
        if agent == text.TOOL and self._search_radius:
            target = text.read_search(action)
            if target is not None:
                route = way(before.grid, before.at, target, self._search_radius)
                return text.Answer((route or "")[: self._max_actions], is_well_formed=True)
        return text.read_answer(agent, action, self._max_actions)


def _tried(before: State, answer: text.Answer, walked: Walk) -> Transition:
    trial = Trial(answer.moves, walked.end, walked.blocked)
    after = replace(before, trial=trial)
    return _transition(after, 0.0, _local_rewards(before, answer, walked), answer, walked)


def _walked(before: State, answer: text.Answer, walked: Walk) -> Transition:
    moved = replace(before, at=walked.end, came_from=before.at, trial=None)
    after = replace(moved, best=min(before.best, moved.distance))
    if before.is_solved:
        team_reward = 0.0
    elif after.is_solved:
        team_reward = 1.0
    else:
        team_reward = (before.best - after.best) / before.first_distance
    return _transition(after, team_reward, _local_rewards(before, answer, walked), answer, walked)


def _local_rewards(before: State, answer: text.Answer, walked: Walk) -> dict[str, float]:
    """The acting agent's terms, each at most 1.

    ``format``: 1 for a well-formed answer. ``legal``: 1 when the moves lead nearer and none is
    blocked; short and safe moves that lead nowhere are not paid, or a weak policy would learn
    to stand still. ``progress``: share of the first distance that the moves close, negative when
    they lead away. The planner's telescopes to at most 1 in an episode; the tool's is bounded in
    each call.
    """
    to_goal = distances(before.grid, before.goal)
    closed = to_goal[before.at] - to_goal[walked.end]
    return {
        "format": float(answer.is_well_formed),
        "legal": float(closed > 0 and not walked.blocked),
        "progress": closed / before.first_distance,
    }


def _transition(
    after: State,
    team_reward: float,
    local_rewards: dict[str, float],
    answer: text.Answer,
    walked: Walk,
) -> Transition:
    info = {
        "grid": text.drawing(after),
        "at": name(after.at),
        "goal": name(after.goal),
        "moves": answer.moves,
        "path": [name(cell) for cell in walked.cells],
        "blocked": list(walked.blocked),
        "distance": after.distance,
    }
    return Transition(
        states.encode_state(after),
        team_reward,
        local_rewards,
        done=after.is_solved,
        success=after.is_solved,
        info=info,
    )


def _known(agent: str) -> str:
    return known_agent(agent, text.KEYWORDS, task="Plan-Path")
