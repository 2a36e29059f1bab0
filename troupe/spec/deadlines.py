"""Deadlines that grow with the bytes that are moved before they end. Pure but for file sizes.

A limit that is set (`limits.startup_timeout_s`, a service's setting) is for what does not depend on
a model's size: processes that start, calls, retries. Whoever moves weights adds ``moving_s``, so a
small model's deadline is its limit and a large one's follows from the model; so it is with the
tokens of a completion. Never imports torch.
"""

from collections.abc import Mapping
from pathlib import Path

from troupe.runtime.engines.presets import DTYPE_BYTES
from troupe.spec.critics import critic_networks
from troupe.spec.job import JobSpec, LimitsSpec
from troupe.spec.memory import decoder_shape, vision_tower
from troupe.spec.policy import LoraSpec, PolicySpec, teacher_name
from troupe.spec.pools import pool_of

SLOWEST_BYTES_PER_S = 25e6
"""What a busy network volume or a shared gigabit line still gives; slower than this is a fault."""
DECODED_BYTES_PER_S = 2e11
"""What a busy server reads of a model's weights, each of which one token needs: a fifth of what the
memory of a small GPU gives."""
FASTEST_TOKENS_PER_S = 50.0
"""A model so small that this rule gives more, or whose size is unknown, is waited for so long."""
CALL_S, EPISODE_S = 120.0, 900.0
"""Time of a Generate call and of an episode, beside that of their tokens."""
STATE_BYTES = 12
"""A trained parameter and AdamW's two moments, in float32."""


def moving_s(size_bytes: float) -> float:
    """Seconds that a deadline gives to reading, sending or writing ``size_bytes``."""
    return size_bytes / SLOWEST_BYTES_PER_S


def model_bytes(model: str, dtype: str = "float32") -> float:
    """Bytes of a model: its files if it is a folder of this machine, else by its shape.

    0 where neither is known: the limit alone then holds.
    """
    files = list(Path(model).expanduser().glob("*.safetensors"))
    if files:
        return float(sum(path.stat().st_size for path in files))
    shape, tower = decoder_shape(model), vision_tower(model)
    if shape is None:
        return 0.0
    parameters = shape.num_parameters() + (tower.num_parameters() if tower else 0)
    return float(parameters * DTYPE_BYTES[dtype])


def startup_s(spec: JobSpec) -> float:
    """Time from launch until every service serves: the trainer loads all models, one by one."""
    return spec.limits.startup_timeout_s + load_s(spec)


def load_s(spec: JobSpec) -> float:
    """Time to read every model of the job once, as its trainer does."""
    bases = {
        (policy.model, policy.dtype, "" if isinstance(policy.train, LoraSpec) else name)
        for name, policy in (spec.policies | critic_networks(spec)).items()
    }
    bases |= {(p.teacher, p.dtype, "") for p in spec.policies.values() if p.teacher is not None}
    return moving_s(sum(model_bytes(model, dtype) for model, dtype, _ in bases))


def decoding_rate(policy: PolicySpec) -> float:
    """The slowest tokens a second at which one completion of ``policy`` is taken to grow."""
    size = model_bytes(policy.model, policy.dtype)
    return min(FASTEST_TOKENS_PER_S, DECODED_BYTES_PER_S / size) if size else FASTEST_TOKENS_PER_S


def generation_s(limits: LimitsSpec, max_new_tokens: int, tokens_per_s: float) -> float:
    """Time of one Generate call: what is set, or that of its longest completion."""
    if limits.generate_timeout_s is not None:
        return limits.generate_timeout_s
    return CALL_S + max_new_tokens / tokens_per_s


def episode_s(spec: JobSpec, rates: Mapping[str, float]) -> float:
    """Time of one episode whose agents act one after another; ``rates`` are by policy, and by
    teacher that replicas serve: it reads what an agent wrote before the next one acts."""
    if spec.limits.episode_timeout_s is not None:
        return spec.limits.episode_timeout_s
    taught = spec.teachers()
    seconds = (
        spec.longest_completion(name) / rates[policy]
        for name, agent in spec.agents.items()
        for policy in (agent.policy, teacher_name(agent.policy))
        if policy == agent.policy or policy in taught
    )
    return EPISODE_S + spec.workflow.max_turns * sum(seconds)


def in_words(spec: JobSpec) -> list[str]:
    """Each deadline of a job that follows from its models and its lengths; a line each."""
    rates = {name: decoding_rate(policy) for name, policy in spec.served().items()}
    limits, lines = spec.limits, list[str]()
    is_set = "" if limits.generate_timeout_s is None else " (set)"
    for name, agent in spec.agents.items():
        tokens, rate = spec.longest_completion(name), rates[agent.policy]
        seconds = generation_s(limits, tokens, rate)
        grows = "" if is_set else f": {tokens:,} tokens at {rate:.0f} a second, {CALL_S:g} s beside"
        lines.append(f"a completion of {name}: {seconds:.0f} s{is_set or grows}")
        if (teacher := teacher_name(agent.policy)) in spec.teachers():
            seconds = generation_s(limits, tokens, rates[teacher])
            lines.append(f"a teacher's scores of it: {seconds:.0f} s{is_set}")
    is_set = "" if limits.episode_timeout_s is None else " (set)"
    return [
        *lines,
        f"an episode: {episode_s(spec, rates):.0f} s{is_set}",
        f"images of a cluster's pods: {limits.image_pull_timeout_s:g} s",
        f"start: {startup_s(spec):.0f} s, of which {load_s(spec):.0f} s to load the models",
        f"a checkpoint: {checkpoint_s(spec):.0f} s",
    ]


def push_s(spec: JobSpec, policy: str, size_bytes: int) -> float:
    """Time for one version of ``policy`` to reach each replica of its pool."""
    return spec.limits.startup_timeout_s + moving_s(size_bytes * pool_of(spec, policy).replicas)


def checkpoint_s(spec: JobSpec) -> float:
    """Time to write a whole checkpoint, with repetitions."""
    written = [*spec.policies.values(), *critic_networks(spec).values()]
    return spec.limits.step_timeout_s + moving_s(sum(map(state_bytes, written)))


def state_bytes(policy: PolicySpec) -> float:
    """A policy's or a critic's part of a checkpoint; 0 where its model's shape is unknown."""
    shape = decoder_shape(policy.model)
    if shape is None:
        return 0.0
    tower = vision_tower(policy.model) if policy.train.vision else None
    if isinstance(policy.train, LoraSpec):
        trained = shape.lora_bytes(policy.train.rank, "float32") / 4
        trained += tower.lora_parameters(policy.train.rank) if tower else 0
    else:
        trained = shape.num_parameters() + (tower.num_parameters() if tower else 0)
    return float(STATE_BYTES * trained)
