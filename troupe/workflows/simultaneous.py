"""All agents act at once, turn after turn; each sees the state at the start of the turn."""

from troupe.spec.job import WorkflowSpec
from troupe.workflows.workflow import EnvironmentView, Team


class Simultaneous:
    """The workflow of a decentralised team (Dec-POMDP): one joint action per turn, T turns at most.

    The environment executes the actions in ``order``; no agent sees what the others do in its turn.

    Source: CoMLRL (arXiv 2508.04652), Section 3.
    """

    acts_at_once = True

    def __init__(self, spec: WorkflowSpec) -> None:
        self.order = tuple(spec.order)
        self.max_turns = spec.max_turns

    async def run(self, team: Team, env: EnvironmentView) -> None:
        """Observe for all, then let all act; stops at once when the environment is done."""
        for _ in range(self.max_turns):
            observations = {agent: env.observe(agent) for agent in self.order}
            for agent in self.order:
                await team[agent].act(observations[agent])
                if env.is_done:
                    return
