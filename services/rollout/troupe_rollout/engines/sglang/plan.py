"""Which servers a job needs on this replica, and whether they fit. Pure: no I/O.

LoRA policies with one base and number format share a server; a full-weight policy has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import (
    LORA_TARGETS,
    check_memory,
    check_tp,
    find_preset,
    memory_plan,
)
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.spec.pools import sharing
from troupe_rollout.engines.sglang.command import CPU_TOTAL_TOKENS, LoraPlan, ServerPlan
from troupe_rollout.engines.sglang.environment import Machine
from troupe_rollout.engines.sglang.files import lora_targets
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.sglang.settings import PREFIX, SPECULATION_ON_CPU, SglangSettings

DEFAULT_MEM_FRACTION = 0.8
CPU_MLP_MULTIPLE = 32


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """One server and the policies that it serves."""

    policies: tuple[str, ...]
    base: SglangModel
    plan: ServerPlan


def plan_servers(
    settings: SglangSettings,
    machine: Machine,
    policies: dict[str, PolicySpec],
    bases: dict[str, SglangModel],
) -> list[ServerGroup]:
    """Raises InvalidArgumentError when slots, ranks or memory do not suffice."""
    groups = sharing(policies)
    if settings.url and len(groups) > 1:
        raise InvalidArgumentError(
            f"TROUPE_ROLLOUT_SGLANG_URL names one server and the policies {sorted(policies)} need "
            f"{len(groups)} (one for each base model and each full-weight policy)."
        )
    if settings.speculation != "off" and machine.device == "cpu":
        raise InvalidArgumentError(
            f"{PREFIX}SPECULATION is '{settings.speculation}', and {SPECULATION_ON_CPU}. Leave it "
            "out here."
        )
    if settings.colocated and len(groups) > 1:
        raise InvalidArgumentError(
            f"The policies {sorted(policies)} need {len(groups)} servers, and one takes turns with "
            "the trainer (TROUPE_ROLLOUT_SGLANG_COLOCATED). Train adapters of one model and dtype."
        )
    return [
        _group(settings, machine, names, policies, bases[names[0]], num_servers=len(groups))
        for names in groups
    ]


def _group(
    settings: SglangSettings,
    machine: Machine,
    names: Sequence[str],
    policies: dict[str, PolicySpec],
    base: SglangModel,
    *,
    num_servers: int,
) -> ServerGroup:
    spec = policies[names[0]]
    loras = [train for n in names if isinstance(train := policies[n].train, LoraSpec)]
    lora = _lora_plan(settings, names, loras) if loras else None
    check_tp(base.name, base.shape, settings.tp_size)
    _check_context(settings, base)
    _check_images(settings, base)
    _check_kernels(settings, machine, base, spec.dtype)
    is_cpu = machine.device == "cpu"
    if is_cpu and lora:
        _check_padding(settings, base)
    preset = find_preset(base.name)
    cache = settings.max_total_tokens or (
        CPU_TOTAL_TOKENS if is_cpu else preset.min_kv_tokens if preset else base.context_length
    )
    plan = memory_plan(
        base.shape,
        spec.dtype,
        lora_slots=lora.slots if lora else 0,
        lora_rank=lora.rank if lora else 0,
        kv_tokens=cache,
        tp_size=settings.tp_size,
        num_tower_parameters=base.tower.num_parameters() if base.tower else 0,
    )
    fraction = settings.mem_fraction or (preset.mem_fraction if preset else DEFAULT_MEM_FRACTION)
    share = int(machine.available_bytes / num_servers * (1 if is_cpu else fraction))
    check_memory(base.name, plan, share)
    return ServerGroup(
        tuple(names),
        base,
        ServerPlan(
            model=base.folder,
            dtype=spec.dtype,
            device=machine.device,
            context_length=min(settings.context_length or 2**31, base.context_length),
            lora=lora,
            mem_fraction=0.0 if is_cpu else fraction,
            share_bytes=0 if is_cpu or num_servers == 1 else share,
            is_colocated=settings.colocated,
            takes_images=base.vision is not None,
        ),
    )


def _check_context(settings: SglangSettings, base: SglangModel) -> None:
    if settings.context_length > base.context_length:
        raise InvalidArgumentError(
            f"TROUPE_ROLLOUT_SGLANG_CONTEXT_LENGTH is {settings.context_length} and model "
            f"'{base.name}' was made for {base.context_length} positions. Lower it, or leave it "
            "out."
        )


def _check_images(settings: SglangSettings, base: SglangModel) -> None:
    """What images need is set by the command line and environment of a server that we start."""
    if settings.url and base.vision is not None:
        raise InvalidArgumentError(
            f"Model '{base.name}' takes images, and the server at TROUPE_ROLLOUT_SGLANG_URL may "
            "read them otherwise than the trainer: how it was started is not known. Leave the "
            "variable out, so that the engine starts the server."
        )


def _check_kernels(
    settings: SglangSettings, machine: Machine, base: SglangModel, dtype: str
) -> None:
    """On a GPU SGLang chooses attention kernels that compute no float32, and ends at a capture."""
    is_chosen = settings.attention_backend or "attention-backend" in settings.extra_flags
    if machine.device == "cuda" and dtype == "float32" and not (is_chosen or settings.url):
        raise InvalidArgumentError(
            f"Model '{base.name}' is to be served in float32, and the attention kernels that "
            "SGLang chooses on a GPU compute in 16 bits. Set `dtype: bfloat16` (of `troupe eval`: "
            f"--dtype bfloat16), or {PREFIX}ATTENTION_BACKEND=torch_native, exact and slow."
        )


def _check_padding(settings: SglangSettings, base: SglangModel) -> None:
    """On a CPU SGLang pads the MLP, and its adapter slots then fit no adapter: it would crash."""
    multiple = CPU_MLP_MULTIPLE * settings.tp_size
    if base.shape.intermediate % multiple:
        raise InvalidArgumentError(
            f"Model '{base.name}' has an intermediate_size of {base.shape.intermediate}. With "
            f"adapters SGLang needs a multiple of {multiple} on a CPU (tp_size "
            f"{settings.tp_size}). Use another model or full weights, or the 'cpu' engine."
        )


def _lora_plan(settings: SglangSettings, names: Sequence[str], loras: list[LoraSpec]) -> LoraPlan:
    if settings.dp_size > 1:
        raise InvalidArgumentError(
            "SGLang loads no adapters with TROUPE_ROLLOUT_SGLANG_DP_SIZE above 1. Use tp_size, or "
            "more replicas."
        )
    if any(lora.vision for lora in loras):
        raise InvalidArgumentError(
            f"A policy of {', '.join(sorted(names))} adapts its vision tower (`train.vision`), and "
            "SGLang applies adapters to the language model alone. Leave `vision` out, train all "
            "weights, or serve it with the cpu engine (TROUPE_ROLLOUT_ENGINE=cpu)."
        )
    needed = len(names) * settings.max_versions
    slots = settings.lora_slots or needed
    if slots < len(names):
        raise InvalidArgumentError(
            f"{len(names)} LoRA policies ({', '.join(sorted(names))}) share a server with "
            f"{slots} adapter slots. Raise TROUPE_ROLLOUT_SGLANG_LORA_SLOTS to at least "
            f"{len(names)}, best {needed}."
        )
    rank = max(lora.rank for lora in loras)
    if settings.lora_rank and settings.lora_rank < rank:
        raise InvalidArgumentError(
            f"A policy trains adapters of rank {rank} and TROUPE_ROLLOUT_SGLANG_LORA_RANK is "
            f"{settings.lora_rank}. Raise it, or leave it out."
        )
    union = {target for lora in loras for target in lora_targets(lora)}
    return LoraPlan(
        rank=settings.lora_rank or rank,
        targets=tuple(name for name in LORA_TARGETS if name in union),
        slots=slots,
        # Staged, loaded and draining versions lie in host memory beside those computed with.
        loaded=max(slots + 1, 3 * needed + 1),
    )
