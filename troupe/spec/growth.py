"""How fast a job's run folder grows, from its spec. Pure but for a model's files.

Owns the bytes of a recorded candidate, token and step, which were fitted to run folders and are
held against a real run by a test. Images are not counted. Never looks at a run folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from troupe.spec.context import context_length
from troupe.spec.critics import critic_networks
from troupe.spec.deadlines import STATE_BYTES, model_bytes, state_bytes
from troupe.spec.job import JobSpec
from troupe.spec.memory import decoder_shape, vision_tower
from troupe.spec.policy import LoraSpec

_GROUP_BYTES, _CANDIDATE_BYTES, _STEP_BYTES = 550.0, 240.0, 9_000.0
"""A group with a short prompt and its line of groups.jsonl; a candidate but for its tokens; a
step's line of metrics.jsonl and its events."""
_TEXT_BYTES, _LOGPROB_BYTES, _TOKENS_BYTES = 4.2, 7.0, 28.0
"""A token's text, its log probability, and the names beside a candidate's lists of both."""
_AT_LEAST_S = 10.0
"""A shorter round is held to what may be recorded in so long: small ones are kept whole."""
_INDEX = 1.08
"""The index of episodes.jsonl, for the web page, comes on top."""


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What one round plays: groups, their candidates, and tokens of all candidates.

    ``prompt_tokens`` are those of prompts beyond a group's short one.
    """

    groups: float
    candidates: float
    tokens: float
    prompt_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes of a run folder: those that each step adds, those of all evaluations, and those of
    weights, which are replaced.

    ``weights_bytes`` holds checkpoints, the published version and the export; None where a model's
    shape is unknown.
    """

    step_bytes: float
    weights_bytes: float | None
    evals_bytes: float = 0.0

    def after(self, steps: int) -> float:
        """The folder's size after so many steps and all evaluations."""
        return self.step_bytes * steps + self.evals_bytes + (self.weights_bytes or 0.0)


def longest_prompts(spec: JobSpec) -> dict[str, int] | None:
    """By agent, the tokens of its model's context; None where one is no folder of this machine."""
    found = {
        agent: context_length(Path(spec.policies[seat.policy].model).expanduser())
        for agent, seat in spec.agents.items()
    }
    known = {agent: length for agent, length in found.items() if length is not None}
    return known if len(known) == len(found) else None


def played_at_most(
    spec: JobSpec, draws: int, prompts: Mapping[str, int] | None = None, *, prompts_per_act: int = 1
) -> StepCounts:
    """The largest step: every turn is played and every completion runs into its limit.

    ``draws`` is the number of candidates that the algorithm draws at each action, from
    ``prompts_per_act`` prompts. ``prompts`` are their longest ones' tokens; short where left out.
    """
    return _played(spec, spec.tasks_per_step, draws, prompts, prompts_per_act, evaluate=False)


def evaluated_at_most(spec: JobSpec, prompts: Mapping[str, int] | None = None) -> StepCounts:
    """The largest evaluation: one candidate an action, as above."""
    return _played(spec, spec.eval.num_tasks, 1, prompts, 1, evaluate=True)


def _played(
    spec: JobSpec,
    num_tasks: int,
    draws: int,
    prompts: Mapping[str, int] | None,
    prompts_per_act: int,
    *,
    evaluate: bool,
) -> StepCounts:
    acts = num_tasks * spec.workflow.max_turns
    longest = sum(spec.sampling_for(a, evaluate=evaluate).max_new_tokens for a in spec.agents)
    groups = acts * len(spec.agents)
    asked = acts * prompts_per_act * sum((prompts or {}).values())
    return StepCounts(groups, groups * draws, acts * draws * longest, asked)


def recorded_share(fraction: float, num_tokens: float, wall_s: float, tokens_per_s: float) -> float:
    """The share of a training round's episodes that is recorded.

    It is ``fraction``, and of a round that samples more than ``tokens_per_s`` (0: no limit) what
    that rate allows. The round was played in ``wall_s``.
    """
    room = tokens_per_s * max(wall_s, _AT_LEAST_S)
    return min(fraction, room / num_tokens) if 0 < room < num_tokens else fraction


def run_growth(
    spec: JobSpec,
    played: StepCounts,
    evaluated: StepCounts | None = None,
    *,
    record_fraction: float = 1.0,
    record_tokens: bool = True,
) -> Growth:
    """The growth with the router's settings of these names; evaluations are always recorded."""
    step = _STEP_BYTES + record_fraction * _lines_bytes(spec, played, record_tokens=record_tokens)
    evals = 0.0
    if evaluated is not None:
        one = _lines_bytes(spec, evaluated, record_tokens=record_tokens)
        evals = len(spec.eval_steps()) * one
    return Growth(step, _weights_bytes(spec), evals)


def _lines_bytes(spec: JobSpec, played: StepCounts, *, record_tokens: bool) -> float:
    token, candidate = _TEXT_BYTES, _CANDIDATE_BYTES
    if record_tokens:
        shapes = [decoder_shape(policy.model) for policy in spec.policies.values()]
        largest = max((shape.vocab for shape in shapes if shape), default=150_000)
        token += _LOGPROB_BYTES + len(str(largest)) + 1
        candidate += _TOKENS_BYTES
    texts = played.tokens * token + played.prompt_tokens * _TEXT_BYTES
    return _INDEX * (played.groups * _GROUP_BYTES + played.candidates * candidate + texts)


def _weights_bytes(spec: JobSpec) -> float | None:
    """Checkpoints, the published version, and each policy's export with its merged model."""
    trained = [p for name, p in spec.policies.items() if spec.trains(name)]
    states = [state_bytes(policy) for policy in trained]
    critics = [state_bytes(network) for network in critic_networks(spec).values()]
    if not all([*states, *critics]):
        return None
    num_checkpoints = spec.checkpoint.keep_last + spec.checkpoint.keep_best
    total = num_checkpoints * sum([*states, *critics])
    for policy, state in zip(trained, states, strict=True):
        weights = state * 4 / STATE_BYTES
        tower = vision_tower(policy.model)
        if tower and not isinstance(policy.train, LoraSpec) and not policy.train.vision:
            weights += 4 * tower.num_parameters()  # frozen, and published with the others
        merged = model_bytes(policy.model, policy.dtype)
        total += 2 * weights + (merged if isinstance(policy.train, LoraSpec) else 0.0)
    return total
