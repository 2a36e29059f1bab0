"""Agents act in a fixed order, turn after turn; each sees what the earlier ones did."""

from troupe.spec.job import WorkflowSpec
from troupe.workflows.workflow import EnvironmentView, Team


class TurnBased:
    """The workflow of Stronger-MAS (arXiv 2510.11062): N agents in order, at most T turns.

    With one agent in ``order`` it is the single-agent baseline.
    """

    def __init__(self, spec: WorkflowSpec) -> None:
        self._order = tuple(spec.order)
        self._max_turns = spec.max_turns

    async def run(self, team: Team, env: EnvironmentView) -> None:
        """One ``act`` per agent and turn; stops at once when the environment is done."""
        for _ in range(self._max_turns):
            for agent in self._order:
                await team[agent].act(env.observe(agent))
                if env.is_done:
                    return
