"""Predicts the memory that a trainer needs on its accelerator, before anything is loaded.

Pure: shapes and settings in, bytes out. The coefficients are those of the trainer's own passes over
a decoder of the Llama and Qwen kind, fitted to an allocation counter that runs them on shapes
alone (tests/unit/trainer/test_memory_prediction.py holds both within 10 %). What ranks share is
arithmetic. Never imports torch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.presets import ModelShape, find_preset, shape_of
from troupe.spec.critics import critic_networks
from troupe.spec.job import JobSpec
from troupe.spec.policy import FullSpec, LoraSpec, PolicySpec
from troupe.spec.tower import (
    KNOWN,
    KNOWN_DECODERS,
    NO_TOWER,
    TowerMemory,
    TowerShape,
    tower_memory,
    tower_shape,
)

GB = 10**9
CONTEXT_BYTES = GB
"""CUDA's context, its libraries' workspaces and the allocator's rounding."""
USABLE = 0.9
"""Share of a GPU that a prediction may take: the rest is for fragmentation and for what differs."""
_HEAD_CHUNK_LOGITS = 1 << 29
_HEAD_CHUNK_TOKENS = (2048, 8192)
_MASK_CELLS_A_TOKEN = 640
_SCORED = 64
"""Tokens by which a push is proved, at most: those of an image are among them."""


_MORE: Mapping[str, ModelShape] = {
    "Qwen3-0.6B": ModelShape(1024, 28, 16, 8, 128, 3072, 151936, True, has_qk_norm=True),
    "Qwen3-4B": ModelShape(2560, 36, 32, 8, 128, 9728, 151936, True, has_qk_norm=True),
    "Qwen3-14B": ModelShape(5120, 40, 40, 8, 128, 17408, 151936, False, has_qk_norm=True),
    "Qwen2.5-0.5B": ModelShape(896, 24, 14, 2, 64, 4864, 151936, True, has_qkv_bias=True),
    "Qwen2.5-3B": ModelShape(2048, 36, 16, 2, 128, 11008, 151936, True, has_qkv_bias=True),
    "Llama-3.2-1B": ModelShape(2048, 16, 32, 8, 64, 8192, 128256, True),
    **KNOWN_DECODERS,
}
"""Shapes of models without a preset, for their memory alone."""
_VARIANTS = ("-Instruct", "-Base", "-Coder", "-Math", "-2507")


def decoder_shape(model: str) -> ModelShape | None:
    """The shape of a model folder (its config.json) or of a hub id that is known; else None.

    Of a model that takes images, that of its language model.
    """
    try:
        return shape_of(_config(model), model)
    except InvalidArgumentError:
        return None  # another architecture
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        name = _plain_name(model)
        preset = find_preset(model) or find_preset(name) or find_preset(f"{name}-Instruct")
        return preset.shape if preset is not None else _MORE.get(name)


def vision_tower(model: str) -> TowerShape | None:
    """The vision tower of a model folder or of a hub id that is known; None of another."""
    try:
        return tower_shape(_config(model))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return KNOWN.get(_plain_name(model))


def _config(model: str) -> Any:
    return json.loads((Path(model).expanduser() / "config.json").read_text("utf-8"))


def _plain_name(model: str) -> str:
    name = model.rstrip("/").rsplit("/", 1)[-1]
    for variant in _VARIANTS:
        name = name.replace(variant, "")
    return name


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes on one GPU. ``held``: weights, moments, reference and teacher; ``gradients``: the sum
    of the trained weights'; ``activations`` that the backward pass keeps, with masks; ``head``: a
    chunk's logits.

    ``peak`` is the larger of two moments of any micro-batch but the first, which meets the
    gradients of those before: when the head's gradient is computed, and when a layer's is.
    """

    held: float
    gradients: float
    activations: float
    head: float
    peak: float


def predict(
    shape: ModelShape,
    policy: PolicySpec,
    *,
    tokens: int,
    checkpoint_activations: bool,
    has_reference: bool = False,
    ranks: int = 1,
    is_offloaded: bool = False,
    tower: TowerMemory = NO_TOWER,
    sums_exactly: bool = False,
) -> Prediction:
    """The memory of one policy's step, for micro-batches of ``tokens`` tokens, with a ``tower``.

    ``has_reference``: the loss or reward has a KL term, for which full weights keep a second copy.
    Weights, moments and gradients are divided by ``ranks``, or in the host's memory
    (``is_offloaded``); embeddings, head and two layers are gathered while they compute.
    ``sums_exactly``: gradients are summed as 64-bit numbers, and none is kept beside the sum.
    """
    number = 2 if policy.dtype == "bfloat16" else 4
    is_full = isinstance(policy.train, FullSpec)
    layer = sum(out * into for out, into in shape.targets().values())
    table = shape.vocab * shape.hidden
    root = table * (1 if shape.is_tied else 2)
    held, trained = _held_weights(shape, policy, number, ranks, has_reference=has_reference)
    held += tower.held
    gradients = (4.0 * trained + tower.gradients) * (2 if sums_exactly else 1)
    if ranks > 1:
        held, gradients = held / ranks, gradients / ranks
    if is_offloaded:
        held = gradients = 0.0
    one_layer = tokens * _kept_a_token(shape, number, is_full=is_full, is_spread=ranks > 1)
    kept_a_layer = tokens * shape.hidden * number
    if not checkpoint_activations:
        has_copies = is_full and number == 2 and ranks == 1  # autocast's
        kept_a_layer = one_layer + (2 * layer if has_copies else 0)
    masks_and_ends = tokens * (_MASK_CELLS_A_TOKEN + 3 * shape.hidden) * number
    activations = shape.layers * kept_a_layer + masks_and_ends + tower.activations
    head = head_chunk(shape.vocab, tokens) * shape.vocab * (6 + 1.5 * number + 1)
    at_head = gradients + activations + head
    at_layer = gradients + (activations + one_layer if checkpoint_activations else 0.0)
    at_end = max(gradients, tower.image)
    if ranks == 1:
        at_head += table * (6 if number == 2 else 4) if is_full else 0.0
    else:
        gathered = root * number + tower.gathered
        at_head += gathered + layer * number
        at_layer += gathered + (2 if is_full else 3) * layer * number
        at_end = max(at_end, activations + 2 * layer * number) + gathered
    if ranks > 1 and is_full:  # gradients come as they were computed, and are added up in float32
        at_head += table * number
        at_layer += table * number + 4 * layer
        at_end = max(at_end + (table + layer) * number, gradients + root * (number + 4))
    return Prediction(held, gradients, activations, head, held + max(at_head, at_layer, at_end))


def _held_weights(
    shape: ModelShape, policy: PolicySpec, number: int, ranks: int, *, has_reference: bool
) -> tuple[float, int]:
    """Bytes of weights, moments and reference on all ranks, and how many numbers are trained."""
    parameters = shape.num_parameters()
    if isinstance(policy.train, LoraSpec):
        trained = shape.lora_bytes(policy.train.rank, "float32") // 4
        return parameters * number + 12 * trained, trained
    of_reference = 4 if ranks == 1 else number
    return (12 + (of_reference if has_reference else 0)) * parameters, parameters


def beside_teacher(
    policy: Prediction, shape: ModelShape, dtype: str, *, tokens: int, ranks: int = 1
) -> Prediction:
    """``policy``'s step with a frozen teacher of ``shape`` beside it.

    The teacher's pass keeps one layer's activations, or a chunk's logits, and ends before the
    policy's begins.
    """
    number = 2 if dtype == "bfloat16" else 4
    held = shape.num_parameters() * number / ranks
    gathered = 0.0
    if ranks > 1:
        layer = sum(out * into for out, into in shape.targets().values())
        root = shape.vocab * shape.hidden * (1 if shape.is_tied else 2)
        gathered = (root + 2 * layer) * number
    in_layer = tokens * number * (3 * shape.intermediate + 4 * shape.hidden)
    head = head_chunk(shape.vocab, tokens) * shape.vocab * (8 + number)
    at_head = head + tokens * shape.hidden * number
    longest = max(policy.peak - policy.held, gathered + in_layer, gathered + at_head)
    return replace(policy, held=policy.held + held, peak=policy.held + held + longest)


def head_chunk(vocabulary: int, tokens: int) -> int:
    """Tokens whose logits exist at once on an accelerator."""
    least, most = _HEAD_CHUNK_TOKENS
    return min(tokens, most, max(least, _HEAD_CHUNK_LOGITS // vocabulary))


def _kept_a_token(shape: ModelShape, number: int, *, is_full: bool, is_spread: bool) -> float:
    """Bytes that one layer keeps of a token for the backward pass, without checkpointing."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    of_i, of_d, of_kv = {
        (2, False): (8.0, 10.0, 8.5),
        (4, False): (16.0, 13.8, 13.0),
        (2, True): (12.0, 12.8, 10.0),
        (4, True): (20.0, 14.9, 16.0),
    }[number, is_full]
    if is_full and is_spread and number == 2:  # nothing is float32 beside the weights themselves
        of_i, of_d, of_kv = 10.0, 10.5, 8.5
    return of_i * shape.intermediate + of_d * (shape.hidden + q) + of_kv * kv


def trainer_peak(
    spec: JobSpec, *, tokens: int, checkpoint_activations: bool, ranks: int = 1
) -> float | None:
    """Bytes that one trainer of ``spec`` needs on each GPU; None where a model's shape is unknown.

    Its policies and their critics lie side by side, adapters of one base and policies of one
    teacher on one copy of it. One learns at a time; each policy keeps its sum of gradients while a
    round is played, and without ``batch.overlap``, as beside critics, only the one that learns has
    any. With ``trainer.per_policy`` it is the largest trainer.
    """
    if spec.trainer.per_policy and len(spec.policies) > 1:
        each = [
            trainer_peak(
                spec.model_copy(update={"policies": {name: policy}}),
                tokens=tokens,
                checkpoint_activations=checkpoint_activations,
                ranks=ranks,
            )
            for name, policy in spec.policies.items()
        ]
        known = [peak for peak in each if peak is not None]
        return max(known) if len(known) == len(each) else None
    parts = _parts(spec, tokens, ranks, checkpoint_activations=checkpoint_activations)
    if parts is None:
        return None
    alone, shared = parts
    held = sum(p.held for p in alone.values()) - shared + CONTEXT_BYTES
    if spec.batch.overlap is False or ranks > 1 or spec.algorithm.critic is not None:
        return held + max(p.peak - p.held for p in alone.values())
    in_passes = max(p.peak - p.held - p.gradients for p in alone.values())
    return held + _kept_sums(spec, alone) + in_passes


def _kept_sums(spec: JobSpec, alone: Mapping[str, Prediction]) -> float:
    """Bytes of the sums of gradients that lie side by side: one of policies that take turns."""
    turns = spec.algorithm.alternate
    sums = {name: alone[name].gradients for name in spec.policies if spec.trains(name)}
    in_turns = sums.keys() & turns.order if turns is not None else set[str]()
    each = sum(sums[name] for name in sums.keys() - in_turns)
    return each + max((sums[name] for name in in_turns), default=0.0)


def trainer_held(spec: JobSpec) -> float | None:
    """Bytes of weights, moments and references that one trainer of one rank keeps between steps."""
    parts = _parts(spec, 0, 1, checkpoint_activations=True)
    return None if parts is None else sum(p.held for p in parts[0].values()) - parts[1]


def _parts(
    spec: JobSpec, tokens: int, ranks: int, *, checkpoint_activations: bool
) -> tuple[dict[str, Prediction], float] | None:
    """Each policy and each critic alone, and the bytes of frozen models that several share; None:
    an unknown shape.

    A critic counts as a policy of its network, with the logits of a head that it does not have.
    """
    alone: dict[str, Prediction] = {}
    bases: set[tuple[str, str]] = set()
    shared = 0.0
    for name, policy in (spec.policies | critic_networks(spec)).items():
        is_critic = name not in spec.policies
        shape = decoder_shape(policy.model)
        if shape is None:
            return None
        if is_critic or spec.trains(name):
            most = _step(
                spec,
                policy,
                shape,
                tokens,
                ranks,
                checkpoint_activations=checkpoint_activations,
                is_critic=is_critic,
            )
        else:
            most = _untrained(spec, policy, shape, ranks)
        frozen = [policy.model] if isinstance(policy.train, LoraSpec) else []
        if policy.teacher is not None and policy.teacher_replicas is None:
            taught_by = decoder_shape(policy.teacher)
            if taught_by is None:
                return None
            most = beside_teacher(most, taught_by, policy.dtype, tokens=tokens, ranks=ranks)
            frozen.append(policy.teacher)
        alone[name] = most
        for model in frozen:
            if (model, policy.dtype) in bases and ranks == 1:
                shared += _weights(model) * (2 if policy.dtype == "bfloat16" else 4)
            bases.add((model, policy.dtype))
    return alone, shared


def _step(
    spec: JobSpec,
    policy: PolicySpec,
    shape: ModelShape,
    tokens: int,
    ranks: int,
    *,
    checkpoint_activations: bool,
    is_critic: bool,
) -> Prediction:
    """The step of a policy or critic that learns, without a teacher."""
    has_reference = spec.algorithm.loss.kl.coef > 0.0 and not is_critic
    tower = vision_tower(policy.model)
    layouts = [
        predict(
            shape,
            policy,
            tokens=tokens - patches,
            checkpoint_activations=checkpoint_activations,
            has_reference=has_reference,
            ranks=ranks,
            is_offloaded=spec.trainer.offload and ranks > 1,
            sums_exactly=not is_critic and spec.batch.sums_exactly(policy) and ranks == 1,
            tower=tower_memory(
                tower,
                policy,
                patches=patches,
                checkpoint_activations=checkpoint_activations,
                has_reference=has_reference,
            ),
        )
        for patches in _patches(tokens, policy, tower)
    ]
    return max(layouts, key=lambda prediction: prediction.peak)


def _untrained(spec: JobSpec, policy: PolicySpec, shape: ModelShape, ranks: int) -> Prediction:
    """A policy that never learns: its weights, and a pass over a few tokens at each push."""
    is_lora = isinstance(policy.train, LoraSpec)
    dtype = policy.dtype if is_lora else "float32"  # full weights are a master copy
    scored = beside_teacher(Prediction(0, 0, 0, 0, 0), shape, dtype, tokens=_SCORED, ranks=ranks)
    held = (_weights(policy.model) - shape.num_parameters()) * (2.0 if dtype == "bfloat16" else 4.0)
    if isinstance(policy.train, LoraSpec):
        held += shape.lora_bytes(policy.train.rank, "float32")
    held = 0.0 if spec.trainer.offload and ranks > 1 else scored.held + held / ranks
    return replace(scored, held=held, peak=held + scored.peak - scored.held)


def _weights(model: str) -> int:
    """Parameters of a model of known shape, with its tower."""
    shape, tower = decoder_shape(model), vision_tower(model)
    return (shape.num_parameters() if shape else 0) + (tower.num_parameters() if tower else 0)


def _patches(tokens: int, policy: PolicySpec, tower: TowerShape | None) -> list[int]:
    """How many of a micro-batch's ``tokens`` may be patches of a tower that is trained: none, or
    all that are not images' tokens. A frozen tower's take no room."""
    if tower is None or not policy.train.vision:
        return [0]
    return [0, tokens - tokens // (1 + tower.merged)]
