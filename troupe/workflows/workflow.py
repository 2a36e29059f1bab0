"""The workflow contract: which agent acts when. Never names an algorithm or sees candidates.

Whatever the sampler draws, a workflow awaits one action at a time and continues from the
environment's new state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from troupe.spec.job import WorkflowSpec
from troupe.tasks.family import Observation


@dataclass(frozen=True, slots=True)
class Action:
    """The executed action of one ``act``: the chosen candidate. ``reward`` is the mixed reward.

    Example: ``Action("R R D", 0.75)``.
    """

    text: str
    reward: float


class Seat(Protocol):
    """One agent of the team, ready to act."""

    async def act(self, observation: Observation) -> Action:
        """Sample from the agent's policy, judge, advance the environment by the chosen action."""
        ...


class EnvironmentView(Protocol):
    """The environment as a workflow sees it: the current state, advanced by each ``act``."""

    @property
    def is_done(self) -> bool:
        """Whether the episode is over; a further ``act`` is an error."""
        ...

    def observe(self, agent: str) -> Observation:
        """What ``agent`` sees now, earlier actions of the same turn included.

        Empty when it has nothing to decide: in a game that takes turns, another seat is to move.
        """
        ...


Team = Mapping[str, Seat]


class Workflow(Protocol):
    """Plays one episode to its end."""

    def __init__(self, spec: WorkflowSpec) -> None: ...

    async def run(self, team: Team, env: EnvironmentView) -> None:
        """Let agents act until the environment is done or the workflow's own limit is reached."""
        ...


@runtime_checkable
class ResumableWorkflow(Protocol):
    """A workflow in which the environment's state alone says who acts next.

    So it can start in any state that it has reached before.
    """

    async def run(self, team: Team, env: EnvironmentView) -> None:
        """As ``Workflow.run``."""
        ...

    async def resume(self, team: Team, env: EnvironmentView, acts: Mapping[str, int]) -> None:
        """Like ``run``, after ``acts`` acts of each agent, which count towards every limit."""
        ...


@runtime_checkable
class AtOnceWorkflow(Protocol):
    """A workflow whose agents all act on what they see at the beginning of a turn.

    No agent sees what another does in the same turn, so a turn is one joint action and an algorithm
    may combine the agents' candidates freely.
    """

    order: tuple[str, ...]
    max_turns: int
    acts_at_once: bool
