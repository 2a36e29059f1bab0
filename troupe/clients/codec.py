"""Converts proto messages to domain values and back, for clients and servicers.

Decoding checks what the wire can't: a wrong role or an impossible parameter is an
InvalidArgumentError. Never does I/O. For candidates see ``troupe.candidates``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from troupe.api.env.v1 import env_pb2 as env
from troupe.api.records.v1 import records_pb2 as records
from troupe.api.rollout.v1 import rollout_pb2 as rollout
from troupe.candidates import GenerateRequest
from troupe.episodes.ports import Outcome
from troupe.episodes.prompts import (
    calls_from_proto,
    message_fields,
    tools_from_proto,
    tools_to_proto,
)
from troupe.episodes.sealed import seal_with, with_seal
from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.engine import PolicyState
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import Content, check_count
from troupe.tasks.family import (
    ROLES,
    SPLITS,
    BoundedObservation,
    Message,
    Observation,
    Split,
    bound_of,
    observed_images,
    tools_of,
)
from troupe.tasks.tool_calls import ToolCall
from troupe.vision.wire import content_from_proto, images_from_proto, images_to_proto


def chat_to_proto(observation: Observation) -> rollout.ChatPrompt:
    """An observation as a chat prompt."""
    return rollout.ChatPrompt(
        messages=[rollout.ChatMessage(**message_fields(m)) for m in observation],
        images=images_to_proto(m.content for m in observation),
        tools=tools_to_proto(tools_of(observation)),
    )


def chat_from_proto(prompt: rollout.ChatPrompt) -> Observation:
    """A chat prompt as an observation; raises InvalidArgumentError for a wrong role or image."""
    messages = _observation(prompt.messages, prompt.images)
    tools = tools_from_proto(prompt.tools)
    return BoundedObservation(messages, tools=tools) if tools else messages


def observation_to_proto(observation: Observation) -> env.Observation:
    """An observation on the env service's wire."""
    return env.Observation(
        messages=[env.ObservationMessage(**message_fields(m)) for m in observation],
        images=images_to_proto(m.content for m in observation),
        tools=tools_to_proto(tools_of(observation)),
        max_new_tokens=bound_of(observation) or 0,
    )


def observation_from_proto(observation: env.Observation) -> Observation:
    """An observation from the env service's wire."""
    messages = _observation(observation.messages, observation.images)
    bound, tools = observation.max_new_tokens, tools_from_proto(observation.tools)
    return BoundedObservation(messages, bound or None, tools) if bound or tools else messages


def observations_to_proto(observations: Mapping[str, Observation]) -> dict[str, env.Observation]:
    """Observations by agent."""
    return {agent: observation_to_proto(observation) for agent, observation in observations.items()}


class ReceivedObservations(Mapping[str, Observation]):
    """Observations by agent, each decoded when it is first asked for.

    Of the outcomes of many candidates an episode goes on with one.
    """

    def __init__(self, received: Mapping[str, env.Observation]) -> None:
        self._received = received
        self._decoded: dict[str, Observation] = {}

    def __getitem__(self, agent: str) -> Observation:
        """The observation; raises InvalidArgumentError for a wrong role or image."""
        if agent not in self._decoded:
            if agent not in self._received:  # a map of messages would make an empty one
                raise KeyError(agent)
            self._decoded[agent] = observation_from_proto(self._received[agent])
        return self._decoded[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self._received)

    def __len__(self) -> int:
        return len(self._received)


def observations_from_proto(observations: Mapping[str, env.Observation]) -> ReceivedObservations:
    """Observations by agent."""
    return ReceivedObservations(observations)


def generate_request_to_proto(request: GenerateRequest[Observation]) -> rollout.GenerateRequest:
    """The call that asks a rollout service for candidates."""
    return rollout.GenerateRequest(
        policy=request.policy,
        policy_version=request.policy_version,
        chat=chat_to_proto(request.prompt),
        num_candidates=request.num_candidates,
        sampling=sampling_to_proto(request.sampling, request.seed),
        follows_updates=request.follows_updates,
    )


def sampling_to_proto(sampling: SamplingSpec, seed: int) -> rollout.SamplingParams:
    """Sampling parameters and the seed of a request."""
    return rollout.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_new_tokens=sampling.max_new_tokens,
        stop=sampling.stop,
        seed=seed,
    )


def sampling_from_proto(params: rollout.SamplingParams) -> tuple[SamplingSpec, int]:
    """Sampling parameters and the seed; raises InvalidArgumentError when out of range."""
    spec = _sampling(
        params.temperature, params.top_p, params.top_k, params.max_new_tokens, tuple(params.stop)
    )
    return spec, params.seed


@lru_cache(maxsize=256)
def _sampling(
    temperature: float, top_p: float, top_k: int, max_new_tokens: int, stop: tuple[str, ...]
) -> SamplingSpec:
    """Cached, so checked once: a job's requests differ in little but their seeds."""
    try:
        return SamplingSpec(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            max_new_tokens=max_new_tokens,
            stop=list(stop),
        )
    except ValidationError as error:
        raise InvalidArgumentError(f"sampling is wrong: {validation_text(error)}.") from error


def policy_state_to_proto(state: PolicyState) -> rollout.PolicyStatus:
    """What an engine holds of one policy. A policy without an active version has none loaded."""
    return rollout.PolicyStatus(
        policy=state.policy,
        active_version=state.active_version or 0,
        tensor_digest=state.tensor_digest,
        loaded_versions=state.loaded_versions,
        staged_versions=state.staged_versions,
    )


def policy_state_from_proto(status: rollout.PolicyStatus) -> PolicyState:
    """What a replica holds of one policy."""
    is_active = status.active_version in status.loaded_versions
    return PolicyState(
        policy=status.policy,
        active_version=status.active_version if is_active else None,
        tensor_digest=status.tensor_digest,
        loaded_versions=tuple(status.loaded_versions),
        staged_versions=tuple(status.staged_versions),
    )


def outcome_to_proto(outcome: Outcome) -> env.StepOutcome:
    """A judged action and what the agents see after it."""
    return env.StepOutcome(
        state=outcome.state,
        seal=seal_with(outcome.state),
        team_reward=outcome.team_reward,
        local_rewards=dict(outcome.local_rewards),
        is_done=outcome.is_done,
        is_success=outcome.is_success,
        info_json=outcome.info_json,
        observations=observations_to_proto(outcome.observations),
    )


def outcome_from_proto(outcome: env.StepOutcome) -> Outcome:
    """A judged action and what the agents see after it."""
    return Outcome(
        state=with_seal(outcome.state, outcome.seal),
        team_reward=outcome.team_reward,
        local_rewards=dict(outcome.local_rewards),
        is_done=outcome.is_done,
        is_success=outcome.is_success,
        info_json=outcome.info_json,
        observations=observations_from_proto(outcome.observations),
    )


def split_from_text(text: str) -> Split:
    """``text`` as a split; raises InvalidArgumentError when there is no such split."""
    for split in SPLITS:
        if split == text:
            return split
    raise InvalidArgumentError(f"{text!r} is not a split; the splits are {', '.join(SPLITS)}.")


def validation_text(error: ValidationError) -> str:
    """pydantic's findings in one line: "top_p: Input should be ..."."""
    return "; ".join(_finding(e["loc"], e["msg"]) for e in error.errors())


def _finding(loc: Iterable[Any], message: str) -> str:
    where = ".".join(str(part) for part in loc)
    return f"{where}: {message}" if where else message


def _observation(
    messages: Iterable[rollout.ChatMessage | env.ObservationMessage],
    table: Sequence[records.ImageData],
) -> Observation:
    images = images_from_proto(table)
    observation = tuple(
        _message(
            m.role, content_from_proto(m.content, m.parts, images), calls_from_proto(m.tool_calls)
        )
        for m in messages
    )
    if images:
        check_count(observed_images(observation))
    return observation


def _message(role: str, content: Content, calls: tuple[ToolCall, ...]) -> Message:
    if role not in ROLES:
        raise InvalidArgumentError(
            f"{role!r} is not the role of a chat message; the roles are {', '.join(ROLES)}."
        )
    return Message(role, content, calls)
