"""Models whose architecture the trainer does not compute, or not rightly: refused by their config.

Owns which they are: mixtures of experts, logits that are scaled or capped, and attention to fewer
tokens than a model's context has; and layers that get no adapter in any model.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.spec.issues import Issue
from troupe.spec.job import JobSpec
from troupe.spec.policy import LoraSpec, PolicySpec

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Where the configs of Qwen-MoE, Mixtral and gpt-oss, DeepSeek, and others have their number."""
_CAPS = ("final_logit_softcapping", "attn_logit_softcapping", "logits_soft_cap")
"""Of Gemma 2 and its kin; null where nothing is capped."""
_SCALES = ("logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier",
           "logits_mup_width_multiplier")  # fmt: skip
"""Of Granite, Cohere, Falcon-H1 and others; null or 1 where nothing is scaled."""
_VOCABULARY = ("embed_tokens", "lm_head")
"""Layers of one row a token. Where they share weights an adapter of one would change both."""
_WINDOWS = ("sliding_window", "sliding_window_size", "attention_chunk_size")


def architecture_refusal(model: str, config: Mapping[str, Any]) -> str | None:
    """Why no policy, critic or teacher may be ``model`` with this config.json; None if it may."""
    language = {**config, **(config.get("text_config") or {})}  # of a model that takes images
    name = f"the model '{model}' ({config.get('model_type', 'no type')})"
    if (count := _num_experts(language)) > 1:
        return (
            f"{name} has {count} experts; mixtures of experts are refused, since there is no "
            "expert parallelism and their memory is not predicted. Take a dense model, such as "
            "Qwen3-8B"
        )
    if (key := _scaled_by(language)) is not None:
        return (
            f"{name} scales or caps its logits ({key} is {language[key]}); the trainer computes "
            "log probabilities from the output head alone, so they would be wrong. Take a model "
            "without, such as Qwen3-8B"
        )
    if (window := window_below_context(config)) is not None:
        context = language.get("max_position_embeddings") or "an unknown number"
        return (
            f"{name} has layers that attend to {window} tokens at most, and its context has "
            f"{context}; the trainer lets every layer attend to all, so "
            "log probabilities of longer sequences would be wrong. Take a model without a sliding "
            "window, such as Qwen3-8B"
        )
    return None


def window_below_context(config: Mapping[str, Any]) -> int | None:
    """The fewest tokens that a layer of the model attends to; None where each attends to all."""
    language = {**config, **(config.get("text_config") or {})}
    window, context = _window(language), language.get("max_position_embeddings")
    return None if window is None or (isinstance(context, int) and window >= context) else window


def _num_experts(language: Mapping[str, Any]) -> int:
    counts = [language.get(name) for name in _EXPERTS]
    return max((count for count in counts if isinstance(count, int)), default=0)


def _scaled_by(language: Mapping[str, Any]) -> str | None:
    """The key by which logits are no longer the output of the head, or of queries and keys."""
    caps = (key for key in _CAPS if language.get(key))
    scales = (key for key in _SCALES if language.get(key) not in (None, 1))
    return next(caps, None) or next(scales, None)


def _window(language: Mapping[str, Any]) -> int | None:
    """The smallest window that a layer uses; None where none does.

    Qwen's configs name a window that `use_sliding_window` leaves unused, others one that none of
    their `layer_types` uses.
    """
    kinds = language.get("layer_types")
    if kinds:
        is_unused = not any("sliding" in str(kind) or "chunked" in str(kind) for kind in kinds)
    else:  # of Qwen: the first layer that has a window
        first, layers = language.get("max_window_layers"), language.get("num_hidden_layers")
        is_unused = isinstance(first, int) and isinstance(layers, int) and first >= layers
    if is_unused or language.get("use_sliding_window") is False:
        return None
    sizes = [language.get(name) for name in _WINDOWS]
    return min((size for size in sizes if isinstance(size, int) and size > 0), default=None)


def targets_refusal(policy: PolicySpec) -> str | None:
    """Why no adapter of ``policy`` may be made; None if it may."""
    targets = policy.train.targets if isinstance(policy.train, LoraSpec) else ()
    # A target names each module whose path ends with it.
    refused = [name for name in targets if name.rpartition(".")[2] in _VOCABULARY]
    if isinstance(targets, str) or not refused:
        return None
    return (
        f"'{refused[0]}' gets no adapter: peft would send the whole layer with it, which no engine "
        "takes, and embedding and output head can share weights. Name linear layers of the "
        "decoder's blocks, such as q_proj, or use 'all-linear'"
    )


def architecture_issues(spec: JobSpec) -> list[Issue]:
    """Models that are refused, where their folders are on this machine, and targets that are."""
    issues = [
        Issue(f"/policies/{name}/train/targets", refusal)
        for name, policy in spec.policies.items()
        if (refusal := targets_refusal(policy)) is not None
    ]
    for pointer, model in spec.models().items():
        try:
            config: Any = json.loads((Path(model).expanduser() / "config.json").read_text("utf-8"))
            refusal = architecture_refusal(model, config)
        except (OSError, ValueError, AttributeError, TypeError):
            continue
        if refusal is not None:
            issues.append(Issue(pointer, refusal))
    return issues
