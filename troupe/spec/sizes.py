"""How many GPUs the parts of a job need at the least, by their predicted memory. Pure.

Owns the bounds that ``layout`` chooses within. The predictions are ``memory``'s (trainers) and
``presets``' (servers), which also refuse a job that can't fit.
"""

from collections.abc import Iterator

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import OVERHEAD_BYTES, check_tp, memory_plan
from troupe.spec.fit import fit_batch
from troupe.spec.job import JobSpec
from troupe.spec.memory import GB, decoder_shape, trainer_held, vision_tower
from troupe.spec.policy import LoraSpec
from troupe.spec.pools import RolloutPool, rollout_pools

SERVED = 0.8
"""Share of a GPU that a server takes (``presets.Preset.mem_fraction``)."""
CACHED_TOKENS = (131_072, 65_536, 32_768)
"""Room of a server for keys and values: the first that a layout can be found for."""
PROCESS_BYTES = 2.0 * GB
"""A rank's own: Python, PyTorch's libraries, the buffers of a collective."""
VERSIONS = 3
"""Adapters of one policy that a server has slots for (TROUPE_ROLLOUT_SGLANG_MAX_VERSIONS)."""
SPLITS = (1, 2, 4, 8, 16, 32, 64)
"""Over how many GPUs a server's or a trainer's weights are split."""


def fitting_ranks(spec: JobSpec, gpu_gb: float, gpus: int, *, can_spread: bool) -> Iterator[int]:
    """The numbers of ranks that a trainer may have and fits into, the fewest first."""
    choices = (spec.trainer.gpus,) if spec.trainer.gpus else SPLITS if can_spread else (1,)
    for ranks in choices:
        try:
            fit_batch(spec, int(gpu_gb * GB), ranks=ranks)
        except InvalidArgumentError:
            continue
        if ranks <= gpus:
            yield ranks


def fewest_ranks(spec: JobSpec, gpu_gb: float, most: int = SPLITS[-1]) -> int | None:
    """The fewest GPUs that a trainer of ``spec`` fits into; None: more than ``most``."""
    return next(fitting_ranks(spec, gpu_gb, most, can_spread=True), None)


def server_split(
    spec: JobSpec, pool: RolloutPool, gpu_gb: float, cached_tokens: int, most: int = SPLITS[-1]
) -> tuple[int, float | None] | None:
    """The fewest GPUs that a server fits into, and its bytes on each; None: more than ``most``."""
    for split in SPLITS:
        if split > most:
            break
        needed = server_bytes(spec, pool, cached_tokens, split)
        if needed is None or needed <= SERVED * gpu_gb * GB:
            return split, needed
    return None


def server_bytes(spec: JobSpec, pool: RolloutPool, cached: int, split: int) -> float | None:
    """Bytes of a server on each of ``split`` GPUs; infinite where it can't be split so."""
    shape = decoder_shape(pool.model)
    if shape is None:
        return None
    try:
        check_tp(pool.model, shape, split)
    except InvalidArgumentError:
        return float("inf")
    tower = vision_tower(pool.model)
    served = spec.served()
    trained = [served[name].train for name in pool.policies]
    ranks = [train.rank for train in trained if isinstance(train, LoraSpec)]
    plan = memory_plan(
        shape,
        pool.dtype,
        lora_slots=VERSIONS * len(ranks),
        lora_rank=max(ranks, default=0),
        kv_tokens=cached,
        tp_size=split,
        num_tower_parameters=tower.num_parameters() if tower else 0,
    )
    return float(plan.total)


def asleep_bytes(spec: JobSpec) -> float:
    """What a server that sleeps leaves on the device: its context, workspaces and adapter slots."""
    adapters = 0.0
    for policy in spec.policies.values():
        shape = decoder_shape(policy.model)
        if shape is not None and isinstance(policy.train, LoraSpec):
            adapters += VERSIONS * shape.lora_bytes(policy.train.rank, policy.dtype)
    return OVERHEAD_BYTES + adapters


def rank_host_bytes(spec: JobSpec, ranks: int) -> float | None:
    """What each of several ranks needs of the host's memory; None: an unknown shape.

    Beside a process's own, its part of the state of full weights, which is copied for a checkpoint
    (of adapters rank 0 copies all), and what is offloaded, with gradients.
    """
    parts: list[float] = []
    has_reference = spec.algorithm.loss.kl.coef > 0.0
    for name, policy in spec.policies.items():
        shape = decoder_shape(policy.model)
        if shape is None:
            return None
        number = 2 if policy.dtype == "bfloat16" else 4
        state = 3.0 if spec.trains(name) else 1.0  # with or without Adam's moments
        if isinstance(policy.train, LoraSpec):
            base = shape.num_parameters() * number / ranks if spec.trainer.offload else 0.0
            parts.append(state * shape.lora_bytes(policy.train.rank, "float32") + base)
        else:
            offloaded = 4.0
            if spec.trains(name):
                offloaded = 16.0 + (number if has_reference else 0)
            a_weight = 4 * state + (offloaded if spec.trainer.offload else 0)
            parts.append(shape.num_parameters() * a_weight / ranks)
    return PROCESS_BYTES + (max(parts) if spec.trainer.per_policy else sum(parts))


def first_rank_bytes(spec: JobSpec) -> float:
    """What rank 0 needs beside ``rank_host_bytes``: the weights of a policy that it publishes or
    exports."""
    sizes = [0.0]
    for policy in spec.policies.values():
        shape = decoder_shape(policy.model)
        if shape is not None:
            sizes.append(shape.num_parameters() * (2.0 if policy.dtype == "bfloat16" else 4.0))
    return max(sizes)


def host_bytes(spec: JobSpec) -> float | None:
    """What the host keeps where server and trainer take turns on one GPU; None: an unknown shape.

    The trainer's weights and moments, and the server's copy of a base that adapters are on: it is
    never sent again, as full weights are.
    """
    held = trainer_held(spec)
    if held is None:
        return None
    pools = rollout_pools(spec)
    bases = [p for p in pools if isinstance(spec.policies[p.name].train, LoraSpec)]
    copies = sum((server_bytes(spec, p, 0, 1) or 0.0) - asleep_bytes(spec) for p in bases)
    return held + copies
