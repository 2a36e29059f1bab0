"""The life of a candidate: from the request, through sampling and judging, to training.

A `GenerateRequest` asks for candidates, a `Candidate` is one sampled completion, a `Generation`
holds the candidates of one prompt, and a `Sample` is a judged candidate, which algorithms compare
and the trainer learns from. Candidates cross two wires: ``rollout_pb2`` between an engine and an
episode, and ``records_pb2`` between an episode and the trainer. Owns these types and their wire
forms. Never samples, judges or scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from troupe.api.records.v1 import records_pb2 as records
from troupe.api.rollout.v1 import rollout_pb2 as rollout
from troupe.ids import prompt_digest
from troupe.tasks.actions import CutAction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from troupe.spec.job import SamplingSpec
    from troupe.tasks.content import ImagePart
    from troupe.tasks.family import Observation

FinishReason = Literal["stop", "length"]
"""The model ended the completion, or the token limit did."""

_FINISH: dict[FinishReason, records.FinishReason] = {
    "stop": records.FINISH_REASON_STOP,
    "length": records.FINISH_REASON_LENGTH,
}
PromptT_co = TypeVar("PromptT_co", covariant=True)
"""Messages, or token ids."""
OtherPromptT = TypeVar("OtherPromptT")


@dataclass(frozen=True, slots=True)
class GenerateRequest(Generic[PromptT_co]):
    """Ask for ``num_candidates`` completions of one prompt; ``seed`` fixes each candidate's draw.

    An episode sends the messages that an agent sees (``GenerateRequest[Observation]``); an engine
    receives token ids (``GenerateRequest[Sequence[int]]``). The rollout service renders one to the
    other with the model's chat template; ``images`` are then what the placeholders among the token
    ids stand for, in order, and ``may_call`` says that the prompt offers tools. One that
    ``follows_updates`` goes on with a version that becomes active meanwhile. The time limit
    belongs to the call and not to the request, because each attempt has less time left.
    """

    policy: str
    policy_version: int
    prompt: PromptT_co
    num_candidates: int
    sampling: SamplingSpec
    seed: int
    images: Sequence[ImagePart] = ()
    may_call: bool = False
    follows_updates: bool = False

    def with_prompt(
        self, prompt: OtherPromptT, images: Sequence[ImagePart] = (), *, may_call: bool = False
    ) -> GenerateRequest[OtherPromptT]:
        """The same request with its prompt in another form."""
        return GenerateRequest(
            self.policy,
            self.policy_version,
            prompt,
            self.num_candidates,
            self.sampling,
            self.seed,
            images,
            may_call,
            self.follows_updates,
        )


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Ask ``policy`` for the log probability of each token of ``completions`` after one prompt.

    At temperature 1. ``observation`` is what the prompt was rendered from.
    """

    policy: str
    policy_version: int
    observation: Observation
    prompt_token_ids: Sequence[int]
    completions: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class PromptImage:
    """An image of a prompt as the engine saw it: ``grid_h`` x ``grid_w`` patches.

    The prompt's token ids have ``grid_h * grid_w / 4`` placeholders for it, one after another.
    """

    digest: str
    width: int
    height: int
    grid_h: int
    grid_w: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sampled completion that has not been judged.

    ``logprobs`` are natural logs under the distribution that was sampled. ``version_spans`` says
    which versions sampled the tokens, in order, as (version, number of tokens); empty when the
    generation's version sampled them all. A server that shows only text gives no token ids.
    ``teacher_logprobs`` are those of the policy's teacher, where rollout replicas serve one.

    Example: ``Candidate([5, 9, 2], [-0.1, -2.3, -0.4], "go up", "stop", ((3, 2), (4, 1)))``.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    text: str
    finish_reason: FinishReason
    version_spans: Sequence[tuple[int, int]] = ()
    teacher_logprobs: Sequence[float] = ()

    @property
    def action(self) -> str:
        """Its text for an environment, which may ask whether it ``is_cut``."""
        return CutAction(self.text) if self.finish_reason == "length" else self.text


@dataclass(frozen=True, slots=True)
class Generation:
    """Candidates of one prompt, in index order. ``engine_s`` excludes queueing.

    ``policy_version`` sampled every token except those that a candidate's ``version_spans`` assigns
    to an older version. ``num_cached_tokens``: prompt tokens, over all candidates, that came from a
    cache or a sibling instead of being computed; None when the engine does not report it.
    ``num_counted_tokens``: prompt and sampled tokens, as counted by a server that shows only text.
    ``prompt_images``: the prompt's images, in the order of their placeholders.
    """

    prompt_token_ids: Sequence[int]
    prompt_digest: str
    candidates: Sequence[Candidate]
    policy_version: int
    engine_s: float
    num_cached_tokens: int | None = None
    num_counted_tokens: tuple[int, int] | None = None
    prompt_images: Sequence[PromptImage] = ()

    @property
    def num_prompt_tokens(self) -> int:
        """Number of prompt tokens."""
        return self.num_counted_tokens[0] if self.num_counted_tokens else len(self.prompt_token_ids)

    @property
    def num_sampled_tokens(self) -> int:
        """Number of sampled tokens over all candidates."""
        if self.num_counted_tokens:
            return self.num_counted_tokens[1]
        return sum(len(candidate.token_ids) for candidate in self.candidates)


def text_generation(
    request: GenerateRequest[Observation],
    texts: Sequence[tuple[str, FinishReason]],
    num_counted_tokens: tuple[int, int],
) -> Generation:
    """A generation without token ids; the prompt digest is taken of its text.

    ``num_counted_tokens`` are prompt and sampled tokens, as counted by whoever wrote the texts.
    """
    prompt = "\x1e".join(f"{m.role}\x1f{m.described}" for m in request.prompt).encode()
    images = [image.digest for m in request.prompt for image in m.images]
    return Generation(
        prompt_token_ids=(),
        prompt_digest=prompt_digest(list(prompt), images),
        candidates=[Candidate((), (), text, reason) for text, reason in texts],
        policy_version=request.policy_version,
        engine_s=0.0,
        num_counted_tokens=num_counted_tokens,
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """One judged candidate: the inputs of its advantage and of the loss.

    ``trajectory`` numbers the independent episode of one task that it belongs to. In a group
    that spans turns, all candidates of one trajectory carry the trajectory's reward or, under a
    sampler that groups by "turns", the reward of their ``turn``. ``is_baseline``: sampled greedily
    for comparison only. ``value`` is the critic's estimate at its prompt and ``log_ratio`` is
    log pi / pi_ref of the whole completion, where the algorithm ``needs`` them. Candidates with one
    ``prompt_digest`` answered the same prompt; "" where it is not known. ``token_ids`` and
    ``rollout_logprobs`` are empty where only the reward is known, as in a recorded episode.
    ``teacher_logprobs`` are empty unless rollout replicas serve the policy's teacher.
    ``terms``: the unweighted terms of the reward, where the algorithm ``needs`` them.
    Credit assignment sets ``temperature`` and ``advantage``, which applies to each token.

    Example: ``Sample(index=0, reward=1.25, num_tokens=9, is_truncated=False)``.
    """

    index: int
    reward: float
    num_tokens: int
    is_truncated: bool
    trajectory: int = 0
    turn: int = 0
    is_baseline: bool = False
    value: float = 0.0
    log_ratio: float = 0.0
    prompt_digest: str = ""
    terms: Mapping[str, float] = field(default_factory=dict[str, float])
    token_ids: Sequence[int] | NDArray[np.int32] = ()
    rollout_logprobs: Sequence[float] | NDArray[np.float32] = ()
    teacher_logprobs: Sequence[float] | NDArray[np.float32] = ()
    advantage: float = 0.0
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The inputs of a group's advantages: K candidates of one policy, in index order.

    ``node`` names the joint action's history that groups of several agents share; "" without one.
    ``term_weights`` holds the weight of each of the candidates' terms. ``lead_returns``: of the
    agent by whose returns all agents are compared, in each trajectory; empty without one.
    """

    group_id: str
    agent: str
    turn: int
    candidates: Sequence[Sample]
    node: str = ""
    term_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    lead_returns: Sequence[float] = ()


def finish_reason_to_proto(reason: FinishReason) -> records.FinishReason:
    """The enum value of a finish reason."""
    return _FINISH[reason]


def finish_reason_from_proto(value: int) -> FinishReason:
    """The finish reason behind an enum value."""
    return "length" if value == records.FINISH_REASON_LENGTH else "stop"


def spans_to_proto(spans: Sequence[tuple[int, int]]) -> list[records.VersionSpan]:
    """The versions that sampled a candidate's tokens, on both wires."""
    return [records.VersionSpan(policy_version=v, num_tokens=count) for v, count in spans]


def prompt_to_proto(generation: Generation) -> records.Prompt:
    """The prompt of a generation, as engines answer and as groups hold it."""
    return records.Prompt(
        digest=generation.prompt_digest,
        token_ids=generation.prompt_token_ids,
        images=[
            records.ImageRef(
                digest=image.digest,
                width=image.width,
                height=image.height,
                grid_h=image.grid_h,
                grid_w=image.grid_w,
            )
            for image in generation.prompt_images
        ],
    )


def prompt_images_from_proto(prompt: records.Prompt) -> tuple[PromptImage, ...]:
    """The images of a prompt, in the order of their placeholders."""
    return tuple(
        PromptImage(i.digest, i.width, i.height, i.grid_h, i.grid_w) for i in prompt.images
    )


def generation_to_proto(generation: Generation) -> rollout.GenerateResponse:
    """The response of a rollout service for a generation."""
    response = rollout.GenerateResponse(
        prompt=prompt_to_proto(generation),
        policy_version=generation.policy_version,
        engine_s=generation.engine_s,
        num_cached_tokens=generation.num_cached_tokens,
    )
    for candidate in generation.candidates:
        response.candidates.add(  # a list of them would be copied
            token_ids=candidate.token_ids,
            logprobs=candidate.logprobs,
            text=candidate.text,
            finish_reason=finish_reason_to_proto(candidate.finish_reason),
            version_spans=spans_to_proto(candidate.version_spans),
        )
    return response


def generation_from_proto(response: rollout.GenerateResponse) -> Generation:
    """The generation in the response of a rollout service, whose lists of numbers it shares.

    A copy of them into Python's own would cost more than all else that is done with them here.
    """
    token_ids = response.prompt.token_ids
    images = prompt_images_from_proto(response.prompt)
    return Generation(
        prompt_token_ids=token_ids,
        prompt_digest=response.prompt.digest
        or prompt_digest(token_ids, [image.digest for image in images]),
        candidates=[
            Candidate(
                token_ids=c.token_ids,
                logprobs=c.logprobs,
                text=c.text,
                finish_reason=finish_reason_from_proto(c.finish_reason),
                version_spans=[(s.policy_version, s.num_tokens) for s in c.version_spans],
            )
            for c in response.candidates
        ],
        policy_version=response.policy_version,
        engine_s=response.engine_s,
        num_cached_tokens=(
            response.num_cached_tokens if response.HasField("num_cached_tokens") else None
        ),
        prompt_images=images,
    )


def sample_of(candidate: records.Candidate) -> Sample:
    """A judged candidate as the trainer receives it. Shares its tokens with the record."""
    return Sample(
        index=candidate.index,
        reward=candidate.reward,
        num_tokens=len(candidate.token_ids),
        is_truncated=candidate.finish_reason == records.FINISH_REASON_LENGTH,
        trajectory=candidate.trajectory,
        turn=candidate.turn,
        is_baseline=candidate.is_baseline,
        prompt_digest=candidate.prompt_digest,
        terms=dict(candidate.terms),
        token_ids=candidate.token_ids,
        rollout_logprobs=candidate.rollout_logprobs,
        teacher_logprobs=candidate.teacher_logprobs,
    )


def group_outcome(group: records.Group) -> GroupOutcome:
    """The part of ``group`` that an advantage may depend on."""
    return GroupOutcome(
        group_id=group.group_id,
        agent=group.agent,
        turn=group.turn,
        candidates=[sample_of(candidate) for candidate in group.candidates],
        node=group.node,
        term_weights=dict(group.term_weights),
        lead_returns=tuple(group.lead_returns),
    )
