"""Plan-Path whose moves are not free: a shortest way is paid 1, any other answer nothing.

A judge for programs that answer once: `judge: {name: "shortest:ShortestWalk", params: {size: 4},
agent: planner}`. In Plan-Path itself moves into walls are free, so a longer answer is a better
one. Nothing is paid for a part of the way: who is paid for it may learn to name one sure move.
"""

from dataclasses import replace

from troupe import Transition
from troupe_tasks.plan_path import PlanPath
from troupe_tasks.plan_path.environment import PlanPathEnvironment
from troupe_tasks.plan_path.state import decode_state


class ShortestWalk(PlanPath):
    """Name the moves of a shortest way to the goal, and no other."""

    return_bound = 1.0

    def environment(self) -> "ShortestWalkEnvironment":
        """The family's judge."""
        params = self._params
        return ShortestWalkEnvironment(params.max_actions, params.style, params.search_radius)


class ShortestWalkEnvironment(PlanPathEnvironment):
    """Every move leads nearer, and the last one reaches the goal."""

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Walk the moves, and count them."""
        walked = super().step(state, agent, action)
        shortest = decode_state(state).distance
        is_shortest = walked.success and len(walked.info["moves"]) == shortest
        paid = float(is_shortest)
        return replace(walked, team_reward=paid, done=is_shortest, success=is_shortest)
