"""Ports of the episode player: a policy that samples and an env that judges.

Clients implement them over gRPC; dry runs and tests implement them in-process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from troupe.candidates import GenerateRequest, Generation, ScoreRequest
from troupe.tasks.family import Observation, Split


@dataclass(frozen=True, slots=True)
class Outcome:
    """One judged action and what the agents see after it."""

    state: bytes
    team_reward: float
    local_rewards: Mapping[str, float]
    is_done: bool
    is_success: bool
    info_json: str
    observations: Mapping[str, Observation]


@dataclass(frozen=True, slots=True)
class Start:
    """The first state of an episode."""

    task_id: str
    state: bytes
    observations: Mapping[str, Observation]


class RolloutPort(Protocol):
    """Draws candidates."""

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Raises a retryable TroupeError when no replica answered in time."""
        ...


class TeacherPort(Protocol):
    """Scores tokens that a policy sampled."""

    async def score(self, request: ScoreRequest, *, timeout_s: float) -> Sequence[Sequence[float]]:
        """Log probabilities of each completion's tokens, in order.

        Raises a retryable TroupeError when no replica answered in time.
        """
        ...


class EnvPort(Protocol):
    """Judges actions of one task family."""

    async def reset(
        self, *, split: Split, index: int, observe: Sequence[str], timeout_s: float
    ) -> Start: ...

    async def step(
        self,
        *,
        state: bytes,
        agent: str,
        actions: Sequence[str],
        observe: Sequence[str],
        timeout_s: float,
    ) -> list[Outcome]: ...

    async def observations(
        self, *, state: bytes, observe: Sequence[str], timeout_s: float
    ) -> Mapping[str, Observation]:
        """What the agents in ``observe`` see in ``state``.

        Raises UnimplementedError where what judges is of a version without this call.
        """
        ...


class RequestPort(EnvPort, Protocol):
    """An EnvPort that also makes a task of a user's text."""

    async def begin_request(self, text: str, *, observe: Sequence[str], timeout_s: float) -> Start:
        """The first state of a request; InvalidArgumentError where the family makes no task."""
        ...
