"""What playing an episode needs of the world: a policy that samples and an env that judges.

Clients implement these over gRPC; a dry run and tests implement them in-process.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Observation, Split, Transition


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled completion of a prompt.

    ``version_spans``: (version, number of tokens) in order; empty when one version sampled all.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    text: str
    finish_reason: Literal["stop", "length"]
    version_spans: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """Candidates of one prompt. ``engine_s`` excludes queueing.

    ``policy_version`` sampled every token but those that a candidate's ``version_spans`` gives to
    an older one. ``num_cached_tokens``: prompt tokens over all candidates that the engine did not
    have to compute; None when it doesn't say.
    """

    prompt_token_ids: Sequence[int]
    prompt_digest: str
    candidates: Sequence[Sampled]
    policy_version: int
    engine_s: float
    num_cached_tokens: int | None = None


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


def outcome_of(
    done: Transition, observations: Mapping[str, Observation], *, sealed: bytes | None = None
) -> Outcome:
    """A judged action as it travels, with what the agents see after it.

    What of ``info`` JSON does not know is written as text. ``sealed`` is the state with its seal,
    where an env service gives it out.
    """
    return Outcome(
        state=done.state if sealed is None else sealed,
        team_reward=done.team_reward,
        local_rewards=done.local_rewards,
        is_done=done.done,
        is_success=done.success,
        info_json=json.dumps(dict(done.info), separators=(",", ":"), default=str),
        observations=observations,
    )


@dataclass(frozen=True, slots=True)
class Start:
    """The first state of an episode."""

    task_id: str
    state: bytes
    observations: Mapping[str, Observation]


class RolloutPort(Protocol):
    """Samples completions."""

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Raises a retryable TroupeError when no replica answered in time."""
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
