"""The team of one trajectory as a workflow sees it, and the call of the workflow."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from troupe.episodes.branch import Branch
from troupe.episodes.judge import exit_error
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


async def play_out(
    run: Callable[..., Awaitable[None]], branch: Branch, spec: JobSpec, *acts: Mapping[str, int]
) -> None:
    """Play ``branch`` to its end by ``run``: a workflow's, or with ``acts`` its ``resume``.

    A ``sys.exit`` in it is an error of its code: it would end the event loop.
    """
    try:
        await run({agent: _Seat(agent, branch) for agent in spec.agents}, branch, *acts)
    except SystemExit as ended:
        raise exit_error(ended) from ended
