"""A trajectory that begins as another one did: its first acts are repeated, not drawn or judged.

Because an environment is a pure function, the repeated acts lead to the same state. Any workflow
can be forked: it runs from the start and is not told which acts are repeated.
"""

from collections.abc import Sequence
from dataclasses import replace

from troupe.episodes.branch import Branch, BranchContext, Draw
from troupe.episodes.ports import Start
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Observation
from troupe.workflows.workflow import Action


class ForkedBranch(Branch):
    """Repeats the draws ``prefix`` of another trajectory of the ticket, then goes on by itself."""

    def __init__(
        self, context: BranchContext, start: Start, trajectory: int, prefix: Sequence[Draw]
    ) -> None:
        super().__init__(context, start, trajectory)
        self._prefix = prefix

    async def act(self, agent: str, observation: Observation) -> Action:
        """Repeat the next act of the prefix; after its end, act."""
        if len(self.draws) == len(self._prefix):
            self._prefix = ()
        if not self._prefix:
            return await super().act(agent, observation)
        draw = self._prefix[len(self.draws)]
        if agent != draw.agent:
            raise InvalidArgumentError(
                f"the workflow let '{agent}' act where '{draw.agent}' did before, after the same "
                "actions; a workflow must decide by the state and its own turns alone"
            )
        self._acts[agent] += 1
        self.draws.append(replace(draw, trajectory=self._trajectory, generate_s=0.0, env_s=0.0))
        self._advance(draw.outcomes[draw.chosen])
        return Action(draw.generation.candidates[draw.chosen].text, draw.rewards[draw.chosen])
