"""Loads a base model with its tokenizer, and reads the facts about it that the engine needs.

Owns the errors of a bad model path. Never trains and never samples.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PretrainedConfig,
)
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file

from troupe.errors import InvalidArgumentError
from troupe.spec.architecture import window_below_context
from troupe.spec.policy import PolicySpec
from troupe.vision.model import KINDS, VisionModel, vision_model_of
from troupe_rollout.engines.cpu.onednn import use_onednn


@dataclass(frozen=True, slots=True)
class CpuModel:
    """One model as it was found on disk. Policies with the same path and dtype share it."""

    path: str
    module: Any
    tokenizer: Any
    end_token_ids: tuple[int, ...]
    vocab_size: int
    context_length: int
    kv_bytes_per_token: int
    vision: VisionModel | None
    """How it takes images; None for a model that takes none."""
    device: torch.device

    def drop_weights(self) -> None:
        """Keep names, shapes and layouts alone: every version brings all of its weights."""
        kept: dict[int, nn.Parameter] = {}
        for name, old in list(self.module.named_parameters(remove_duplicate=False)):
            if id(old) not in kept:
                kept[id(old)] = nn.Parameter(torch.empty_like(old, device="meta"), False)
            replace_parameter(self.module, name, kept[id(old)])


def load_base(spec: PolicySpec, device: str) -> CpuModel:
    """Load a base model; raises InvalidArgumentError, for the user, when it can't be served."""
    path = spec.model
    if path.startswith(("/", ".", "~")) and not Path(path).expanduser().is_dir():
        raise InvalidArgumentError(
            f"Model path '{path}' is not a folder on the machine of the rollout service. Make the "
            "model there (`troupe model tiny`), or correct `model` of the policy in the job spec."
        )
    source = str(Path(path).expanduser()) if path.startswith("~") else path
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        vision = _vision(source)
        loader: Any = AutoModelForCausalLM if vision is None else AutoModelForImageTextToText
        module: Any = loader.from_pretrained(
            source,
            dtype=getattr(torch, spec.dtype),
            attn_implementation="sdpa",
            use_safetensors=True,  # a .bin file is pickle
        )
        module.to(device)
        module.eval()
        module.requires_grad_(False)
        if device == "cpu":
            _lay_out_by_columns(module)
            use_onednn(module)
    except Exception as error:  # transformers raises many types for a broken folder
        detail = " ".join(str(error).split())[:400]
        raise InvalidArgumentError(
            f"Model '{path}' can't be loaded ({type(error).__name__}: {detail}). It must be a "
            "folder (or reachable hub id) with config.json, safetensors weights and a tokenizer "
            "of a causal language model, and must fit in memory."
        ) from error
    config = module.config.get_text_config()
    _check_attention(path, config)
    return CpuModel(
        path=path,
        module=module,
        tokenizer=tokenizer,
        end_token_ids=tuple(sorted(set(_end_tokens(module, tokenizer)))),
        vocab_size=int(module.get_input_embeddings().num_embeddings),
        context_length=int(config.max_position_embeddings),
        kv_bytes_per_token=_kv_bytes(config, module.dtype),
        vision=vision,
        device=module.device,
    )


def replace_parameter(module: nn.Module, name: str, value: nn.Parameter) -> None:
    """Replace the parameter called ``name`` by ``value``."""
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, value)


def _vision(source: str) -> VisionModel | None:
    config: dict[str, Any] = PretrainedConfig.get_config_dict(source)[0]
    if config.get("model_type") not in KINDS:
        return None
    preprocessor = Path(str(cached_file(source, "preprocessor_config.json")))
    return vision_model_of(source, config, json.loads(preprocessor.read_text("utf-8")))


def _lay_out_by_columns(module: Any) -> None:
    """Linear weights in memory as their products read them: a sixth less time for few rows.

    The numbers stay the same to the last bit. A weight that an embedding reads too stays by rows.
    """
    looked_up = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding)}
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and id(layer.weight) not in looked_up:
            by_columns = layer.weight.t().contiguous().t()
            layer.weight = nn.Parameter(by_columns, requires_grad=False)


def _check_attention(path: str, config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = window_below_context(config.to_dict())
    if kinds != {"full_attention"} or window is not None:
        found = f"of kind {sorted(kinds)}" if window is None else f"that attend to {window} tokens"
        raise InvalidArgumentError(
            f"Model '{path}' has layers {found}, and the cpu engine decodes full attention only. "
            "Use a Qwen2, Qwen3 or Llama model, or another engine."
        )


def _end_tokens(module: Any, tokenizer: Any) -> Iterator[int]:
    for source in (module.generation_config, module.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        if isinstance(value, int):
            yield value
        elif value is not None:
            yield from (int(item) for item in value)


def _kv_bytes(config: Any, dtype: torch.dtype) -> int:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(config.num_hidden_layers * 2 * heads * size * dtype.itemsize)
