"""Deadlines that grow with the bytes that are moved before they end. Pure but for file sizes.

A limit that is set (`limits.startup_timeout_s`, a service's setting) is for what does not depend on
a model's size: processes that start, calls, retries. Whoever moves weights adds ``moving_s``, so a
small model's deadline is its limit and a large one's follows from the model. Never imports torch.
"""

from pathlib import Path

from troupe.runtime.engines.presets import DTYPE_BYTES
from troupe.spec.job import JobSpec
from troupe.spec.memory import decoder_shape, vision_tower
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.spec.pools import pool_of

SLOWEST_BYTES_PER_S = 25e6
"""What a busy network volume or a shared gigabit line still gives; slower than this is a fault."""
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
    bases = {
        (policy.model, policy.dtype, "" if isinstance(policy.train, LoraSpec) else name)
        for name, policy in spec.policies.items()
    }
    bases |= {(p.teacher, p.dtype, "") for p in spec.policies.values() if p.teacher is not None}
    loaded = sum(model_bytes(model, dtype) for model, dtype, _ in bases)
    return spec.limits.startup_timeout_s + moving_s(loaded)


def push_s(spec: JobSpec, policy: str, size_bytes: int) -> float:
    """Time for one version of ``policy`` to reach each replica of its pool."""
    return spec.limits.startup_timeout_s + moving_s(size_bytes * pool_of(spec, policy).replicas)


def checkpoint_s(spec: JobSpec) -> float:
    """Time to write a whole checkpoint, with repetitions."""
    return spec.limits.step_timeout_s + moving_s(sum(map(state_bytes, spec.policies.values())))


def state_bytes(policy: PolicySpec) -> float:
    """A policy's part of a checkpoint; 0 where its model's shape is unknown."""
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
