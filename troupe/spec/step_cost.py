"""What a step of a job takes on a layout, by a formula whose rates are assumed. Pure.

No rate was measured: they are those of a GPU of 80 GB (H100), and the formula is here so that a
measured one can be put in its place. It leaves out judging, prompts, waiting and evaluations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from troupe.runtime.engines.presets import DTYPE_BYTES
from troupe.spec.job import JobSpec
from troupe.spec.layout import GpuLayout, ServerPlace
from troupe.spec.memory import decoder_shape
from troupe.spec.policy import LoraSpec, PolicySpec, teacher_name
from troupe.spec.sizes import host_bytes


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device and its links are taken to give. ``flops`` a second are those of the peak."""

    memory_bytes_per_s: float = 3.35e12
    memory_share: float = 0.5
    flops: float = 989e12
    mfu: float = 0.35
    link_bytes_per_s: float = 25e9
    bus_bytes_per_s: float = 5e9
    context_tokens: int = 2048


LORA_FLOPS, FULL_FLOPS, READ_FLOPS = 6.0, 8.0, 2.0
"""Of a trained token, times the model's parameters: forward, forward again for the activations, and
backward, which of frozen weights needs no gradient of their own. Of a token that is read alone:
forward."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step by its parts, which follow one another."""

    play_s: float
    learn_s: float
    push_s: float
    turns_s: float

    @property
    def total_s(self) -> float:
        """The whole step."""
        return self.play_s + self.learn_s + self.push_s + self.turns_s


def step_cost(
    spec: JobSpec, layout: GpuLayout, tokens: Mapping[str, int], rates: Rates | None = None
) -> StepCost | None:
    """A step that samples and trains ``tokens`` of each policy; None: a model's shape is unknown.

    - play: tokens / (GPUs of the pool * rate). The rate is that of decoding a full cache: each pass
      reads the weights and all keys and values, and gives a token to each sequence. A pool that
      serves a teacher reads the tokens in one pass each, meanwhile.
    - learn: tokens * flops * parameters / (ranks * flops a second * MFU); one trainer after
      another where it learns several policies.
    - push: the new bytes over one link, all replicas at once.
    - turns: on one GPU what is off it crosses the bus twice.
    """
    rates = rates or Rates()
    if any(decoder_shape(policy.model) is None for policy in spec.served().values()):
        return None
    play = max(_playing_s(spec, place, layout, tokens, rates) for place in layout.servers)
    learn = max(
        sum(
            _learning_s(spec.policies[name], tokens[name], len(place.gpus), rates)
            for name in ([place.policy] if place.policy else spec.policies)
        )
        for place in layout.trainers
    )
    push = sum(_sent_bytes(policy) for policy in spec.policies.values()) / rates.link_bytes_per_s
    moved = (host_bytes(spec) or 0.0) if layout.is_colocated else 0.0
    return StepCost(play, learn, push, 2 * moved / rates.bus_bytes_per_s)


def sampled_at_most(spec: JobSpec, draws: int) -> dict[str, int]:
    """Tokens of each policy in a step whose every turn is played and every completion is longest.

    ``draws`` candidates are drawn at each action.
    """
    acts = spec.tasks_per_step * spec.workflow.max_turns
    tokens = dict.fromkeys(spec.policies, 0)
    for name, agent in spec.agents.items():
        tokens[agent.policy] += acts * draws * spec.sampling_for(name).max_new_tokens
    return tokens


def _playing_s(
    spec: JobSpec, place: ServerPlace, layout: GpuLayout, tokens: Mapping[str, int], rates: Rates
) -> float:
    """What a pool's servers take to sample their policies' tokens, and to score those of others."""
    sampled = sum(tokens.get(name, 0) for name in place.pool.policies)
    rate = _decoding_rate(spec, place.pool.policies[0], layout, rates)
    scored = sum(n for name, n in tokens.items() if teacher_name(name) in place.pool.policies)
    shape = decoder_shape(place.pool.model)
    assert shape is not None
    gpus = place.tp_size * len(place.gpus)
    read_s = scored * READ_FLOPS * shape.num_parameters() / (gpus * rates.flops * rates.mfu)
    return sampled / (len(place.gpus) * rate) + read_s


def _decoding_rate(spec: JobSpec, policy: str, layout: GpuLayout, rates: Rates) -> float:
    """Tokens a second of one server of ``policy``'s pool, which reads with all of its GPUs."""
    model = spec.served()[policy]
    shape = decoder_shape(model.model)
    assert shape is not None
    [split] = {place.tp_size for place in layout.servers if policy in place.pool.policies}
    read = shape.num_parameters() * DTYPE_BYTES[model.dtype]
    read += layout.cached_tokens * shape.kv_bytes_per_token(model.dtype)
    passes = split * rates.memory_bytes_per_s * rates.memory_share / read
    return passes * layout.cached_tokens / rates.context_tokens


def _learning_s(policy: PolicySpec, tokens: int, ranks: int, rates: Rates) -> float:
    shape = decoder_shape(policy.model)
    assert shape is not None
    flops = LORA_FLOPS if isinstance(policy.train, LoraSpec) else FULL_FLOPS
    return tokens * flops * shape.num_parameters() / (ranks * rates.flops * rates.mfu)


def _sent_bytes(policy: PolicySpec) -> float:
    """What a push of ``policy`` carries to a replica."""
    shape = decoder_shape(policy.model)
    assert shape is not None
    if isinstance(policy.train, LoraSpec):
        return float(shape.lora_bytes(policy.train.rank, policy.dtype))
    return float(shape.num_parameters() * DTYPE_BYTES[policy.dtype])
