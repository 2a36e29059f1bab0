"""Loads one policy's transformers model, and puts a LoRA adapter on it."""

import copy
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import init_empty_weights
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import AutoConfig, GenerationConfig
from transformers.initialization import no_init_weights
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from troupe.errors import InvalidArgumentError, JobFailedError, WeightsRejectedError
from troupe.runtime.telemetry.logging import get_logger
from troupe.seeds import derive_seed
from troupe.spec.architecture import architecture_refusal, targets_refusal
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe_trainer.model.kernels import PLAIN, Kernels
from troupe_trainer.model.stored import StoredTensors
from troupe_trainer.model.vision import adapter_targets, auto_class

_log = get_logger(__name__)
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Unfilled:
    """A model whose parameters are on "meta", and the files that have their numbers."""

    causal: Any
    stored: StoredTensors

    def twin(self, dtype: torch.dtype) -> "Unfilled":
        """A copy that will be filled on its own, with parameters of ``dtype``."""
        causal = copy.deepcopy(self.causal)
        for parameter in causal.parameters():
            parameter.data = parameter.data.to(dtype)
        return Unfilled(causal, self.stored)

    def places(self) -> list[tuple[nn.Module, str, str]]:
        """The module and attribute of each parameter, and its name in the files."""
        return [
            (module, attribute, f"{path}.{attribute}")
            for path, module in self.causal.named_modules()
            for attribute, _ in module.named_parameters(recurse=False)
            if f"{path}.{attribute}" in self.stored
        ]


def empty_causal(policy: str, spec: PolicySpec, kernels: Kernels) -> Unfilled | None:
    """transformers' model of ``spec`` without numbers: its buffers are there, its parameters not.

    None where the files do not have exactly its parameters under their own names: transformers then
    renames, joins or converts them, which ``load_causal`` leaves to it.
    """
    try:
        stored = StoredTensors(_files(spec.model))
        causal = _empty(spec, kernels)
    except (OSError, ValueError, KeyError, WeightsRejectedError) as error:
        _log.info("model.loaded_whole", policy=policy, why=str(error))
        return None
    _check_parts(causal, policy, spec)
    wrong = [
        name
        for name, parameter in causal.named_parameters()
        if name not in stored or stored.shape(name) != tuple(parameter.shape)
    ]
    is_converted = getattr(causal.config, "quantization_config", None) is not None
    is_mixed = bool(causal._keep_in_fp32_modules or causal._keep_in_fp32_modules_strict)
    if _has_untied_copies(causal, stored):  # transformers ties nothing then
        _log.info(
            "model.loaded_whole", policy=policy, why="its files hold tied tensors that differ"
        )
        return None
    if wrong or is_converted or (is_mixed and causal.dtype != torch.float32):
        why = f"{len(wrong)} tensors are not in its files, {wrong[:1]}" if wrong else "converted"
        _log.info("model.loaded_whole", policy=policy, why=why)
        return None
    for name, buffer in causal.named_buffers():
        if name in stored:
            buffer.copy_(stored[name])
    return Unfilled(causal, stored)


def _has_untied_copies(causal: Any, stored: StoredTensors) -> bool:
    """Whether two tensors that the model ties are both in its files, with other numbers."""
    return any(
        {copy, source} <= stored.keys() and not torch.equal(stored[copy], stored[source])
        for copy, source in causal.all_tied_weights_keys.items()
    )


def skeleton(policy: str, spec: PolicySpec) -> Any:
    """A model of ``spec`` without numbers, for its ``save_pretrained``; None as `empty_causal`."""
    unfilled = empty_causal(policy, spec, PLAIN)
    if unfilled is None:
        return None
    with suppress(OSError):  # not every model has one
        unfilled.causal.generation_config = GenerationConfig.from_pretrained(spec.model)
    return unfilled.causal


def _empty(spec: PolicySpec, kernels: Kernels) -> Any:
    with init_empty_weights(include_buffers=False), no_init_weights():
        causal: Any = auto_class(spec.model).from_config(
            AutoConfig.from_pretrained(spec.model),
            dtype=_load_dtype(spec),
            attn_implementation=kernels.attention,
        )
    causal.tie_weights()
    kernels.patch(causal)
    return causal


def _files(model: str) -> list[Path]:
    """The safetensors files of a model folder or hub id; raises OSError where there are none."""
    single = cached_file(model, _SINGLE, _raise_exceptions_for_missing_entries=False)
    if single is not None:
        return [Path(single)]
    index = cached_file(model, _INDEX)
    return [Path(path) for path in get_checkpoint_shard_files(model, index)[0]]


def _load_dtype(spec: PolicySpec) -> torch.dtype:
    """Full weights are kept as a float32 master copy."""
    return getattr(torch, spec.dtype) if isinstance(spec.train, LoraSpec) else torch.float32


def refuse_architecture(policy: str, spec: PolicySpec) -> None:
    """Raise InvalidArgumentError for a model that `architecture_refusal` names, before it loads."""
    with suppress(OSError, ValueError):  # no such model: whoever loads it says so
        config: Any = AutoConfig.from_pretrained(spec.model)
        if (refusal := architecture_refusal(spec.model, config.to_dict())) is not None:
            raise InvalidArgumentError(refusal, pointer=f"/policies/{policy}/model")


def load_causal(policy: str, spec: PolicySpec, device: torch.device, kernels: Kernels) -> Any:
    """transformers' model of ``spec`` on ``device``; raises as `PolicyModel` does."""
    try:
        model: Any = auto_class(spec.model).from_pretrained(
            spec.model,
            dtype=_load_dtype(spec),
            attn_implementation=kernels.attention,
            use_safetensors=True,  # a .bin file is pickle
        )
        model.to(device)
        kernels.patch(model)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidArgumentError(
            f"The model '{spec.model}' of policy '{policy}' can't be loaded: {error}. Give a "
            "local folder of a transformers causal language model with safetensors weights, or a "
            "hub id within reach.",
            pointer=f"/policies/{policy}/model",
        ) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise JobFailedError(
            f"The model '{spec.model}' of policy '{policy}' does not fit into the memory of "
            f"{device}: {error}. Use a smaller model, bfloat16, or a larger machine."
        ) from error
    _check_parts(model, policy, spec)
    return model


def _check_parts(model: Any, policy: str, spec: PolicySpec) -> None:
    if not hasattr(model, "model") or model.get_output_embeddings() is None:
        raise InvalidArgumentError(
            f"The model '{spec.model}' has no separate decoder and output head "
            f"({type(model).__name__}); use a Llama-, Qwen- or Mistral-like architecture.",
            pointer=f"/policies/{policy}/model",
        )


def same_weights(model: Any) -> Any:
    """New modules around the same parameters; the memory cost is negligible."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters()})


def with_adapter(policy: str, base: Any, policy_spec: PolicySpec, seed: int) -> Any:
    """``base`` with a fresh LoRA adapter of ``policy_spec``, drawn with ``seed``.

    Raises:
        InvalidArgumentError: its targets name no linear layer, or none that it should.
    """
    pointer = f"/policies/{policy}/train/targets"
    if (refusal := targets_refusal(policy_spec)) is not None:
        raise InvalidArgumentError(refusal, pointer=pointer)
    spec = cast("LoraSpec", policy_spec.train)
    config = LoraConfig(
        r=spec.rank,
        lora_alpha=cast("int", spec.alpha),
        **adapter_targets(base, spec),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), quiet_peft(), _stand_ins(base):
        torch.manual_seed(derive_seed(seed, "adapter", policy))
        try:
            adapted = get_peft_model(base, config)
        except ValueError as error:
            raise InvalidArgumentError(
                f"The adapter of policy '{policy}' can't be made: {error}. Name linear layers of "
                "the model, or use 'all-linear'.",
                pointer=pointer,
            ) from error
    if spec.vision and not any(
        ".visual." in name and p.requires_grad for name, p in adapted.named_parameters()
    ):
        raise InvalidArgumentError(
            f"`targets` of policy '{policy}' name no layer of its vision tower; use 'all-linear', "
            "or leave `vision` out.",
            pointer=pointer,
        )
    for module in adapted.modules():
        if isinstance(module, LoraLayer):
            # peft would copy each linear layer's input to float32, and keep the copies; under
            # autocast the adapter computes from the input itself, in bfloat16.
            module.cast_input_dtype_enabled = policy_spec.dtype == "float32"
    # peft keeps a set, whose order differs between processes and would reach adapter_config.json.
    made: Any = adapted.peft_config["default"]
    made.target_modules = sorted(made.target_modules)
    return adapted


@contextmanager
def _stand_ins(base: Any) -> Generator[None]:
    """Put tensors of the CPU that take no memory in the place of parameters on "meta" meanwhile:
    peft takes a new adapter to the device of its layer, where its numbers would be lost."""
    empty = [
        (module, name, parameter)
        for module in base.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.is_meta
    ]
    for module, name, parameter in empty:
        number = torch.zeros(1, dtype=parameter.dtype)
        stand_in = nn.Parameter(number.expand(parameter.shape), parameter.requires_grad)
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for module, name, parameter in empty:
            parameter.requires_grad_(getattr(module, name).requires_grad)
            setattr(module, name, parameter)


@contextmanager
def quiet_peft() -> Generator[None]:
    """peft reads an attribute that transformers has renamed, and warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
