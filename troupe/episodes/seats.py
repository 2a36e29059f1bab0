"""The team of one trajectory, as a workflow sees it."""

from collections.abc import Mapping
from dataclasses import dataclass

from troupe.episodes.branch import Branch
from troupe.errors import PromptTooLongError
from troupe.spec.job import JobSpec
from troupe.tasks.family import Observation
from troupe.workflows.workflow import Action


@dataclass(frozen=True, slots=True)
class _Seat:
    agent: str
    branch: Branch

    async def act(self, observation: Observation) -> Action:
        try:
            return await self.branch.act(self.agent, observation)
        except PromptTooLongError as error:
            return self.branch.end_unpaid(self.agent, error)


def seats(branch: Branch, spec: JobSpec) -> Mapping[str, _Seat]:
    """The team of one trajectory."""
    return {agent: _Seat(agent, branch) for agent in spec.agents}
