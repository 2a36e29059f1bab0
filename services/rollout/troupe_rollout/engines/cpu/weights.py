"""Turns a received safetensors file into a module that serves: LoRA merged, or full weights.

Owns the arithmetic of merging and the check of every name and shape. A version shares with the
base all parameters that it does not change, so a LoRA version costs the memory of its target
matrices and a full version costs the whole model.
"""

import re
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from troupe.errors import WeightsRejectedError
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.weights import TensorSum, TensorView, adapter_scale, sums_of
from troupe.runtime.weights.manifest import parse_adapter_config
from troupe_rollout.engines.cpu.model import CpuModel, replace_parameter

_LORA_NAME = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight$")
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_UNSUPPORTED = ("use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "modules_to_save")


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The file's tensors; raises WeightsRejectedError when it is not safetensors."""
    try:
        return load_file(path)
    except Exception as error:  # safetensors raises its own type and OSError
        raise WeightsRejectedError(
            f"{path} can't be read as safetensors ({error}). Export and send the weights again."
        ) from error


def sums_of_tensors(tensors: dict[str, Tensor]) -> list[TensorSum]:
    """`troupe.runtime.weights.sums_of` over tensors in memory."""
    return sums_of(
        TensorView(name, _DTYPES[tensor.dtype], tuple(tensor.shape), _bytes(tensor))
        for name, tensor in tensors.items()
    )


def build_module(base: CpuModel, weights: StagedWeights, tensors: dict[str, Tensor]) -> Any:
    """A module of the base's architecture that computes with ``tensors``.

    Raises:
        WeightsRejectedError: A tensor is unknown, missing or of the wrong shape; it is named.
    """
    where = f"Weights of policy '{weights.policy}' version {weights.policy_version}"
    module = _twin(base.module, {})
    with torch.no_grad():
        if weights.kind == "lora":
            _merge_lora(module, tensors, weights.adapter_config_json, where)
        else:
            _replace_all(module, tensors, where)
    return module


def _twin(module: Any, twins: dict[int, Any]) -> Any:
    """New modules around the same tensors; everything but modules is shared.

    Made for each version: ``copy.deepcopy`` of a small model costs as much as receiving it.
    """
    if (known_twin := twins.get(id(module))) is not None:
        return known_twin
    twin = twins[id(module)] = module.__new__(type(module))
    twin.__dict__ = module.__dict__ | {
        "_parameters": dict(module._parameters),
        "_buffers": dict(module._buffers),
    }
    twin._modules = {
        name: None if child is None else _twin(child, twins)
        for name, child in module._modules.items()
    }
    return twin


def _merge_lora(module: Any, tensors: dict[str, Tensor], config_json: str, where: str) -> None:
    """W + scale * B @ A for every target. Source: LoRA, arXiv 2106.09685, Eq. 3."""
    config, scale = parse_adapter_config(config_json), adapter_scale(config_json)
    if unsupported := [name for name in _UNSUPPORTED if config.get(name)]:
        raise WeightsRejectedError(f"{where} use {unsupported}, which the cpu engine can't merge.")
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if (match := _LORA_NAME.match(name)) is None:
            raise WeightsRejectedError(f"{where}: tensor '{name}' is not a LoRA matrix of a layer.")
        pairs.setdefault(match[1], {})[match[2]] = tensor
    for target, pair in pairs.items():
        if pair.keys() != {"A", "B"}:
            raise WeightsRejectedError(
                f"{where}: tensor '{target}.lora_A' or '.lora_B' is missing."
            )
        layer = _linear(module, target, where)
        weight = layer.weight
        a, b = (pair[side].to(weight.device, torch.float32) for side in "AB")
        if (b.shape[0], *a.shape[1:]) != tuple(weight.shape) or b.shape[1] != a.shape[0]:
            raise WeightsRejectedError(
                f"{where}: tensor '{target}.lora_B' {list(b.shape)} times 'lora_A' {list(a.shape)} "
                f"does not give the layer's {list(weight.shape)}."
            )
        layer.weight = _laid_out_as(weight, weight.float() + scale * (b @ a))


def _linear(module: Any, target: str, where: str) -> nn.Linear:
    try:
        layer = module.get_submodule(target)
    except AttributeError as error:
        raise WeightsRejectedError(
            f"{where}: tensor '{target}.lora_A' names a layer that the model does not have."
        ) from error
    if not isinstance(layer, nn.Linear):
        raise WeightsRejectedError(
            f"{where}: tensor '{target}.lora_A' targets a {type(layer).__name__}, not a Linear."
        )
    return layer


def _replace_all(module: Any, tensors: dict[str, Tensor], where: str) -> None:
    """Every parameter from the file; tied names may be given once or each time."""
    ties: dict[int, list[str]] = {}
    current: dict[str, nn.Parameter] = dict(module.named_parameters(remove_duplicate=False))
    for name, parameter in current.items():
        ties.setdefault(id(parameter), []).append(name)
    if unknown := sorted(tensors.keys() - current.keys()):
        raise WeightsRejectedError(f"{where}: tensor '{unknown[0]}' is unknown to the model.")
    for names in ties.values():
        received = [name for name in names if name in tensors]
        if not received:
            raise WeightsRejectedError(f"{where}: tensor '{names[0]}' is missing.")
        old, tensor = current[received[0]], tensors[received[0]]
        if tensor.shape != old.shape:
            raise WeightsRejectedError(
                f"{where}: tensor '{received[0]}' is {list(tensor.shape)} and the model wants "
                f"{list(old.shape)}."
            )
        for other in received[1:]:
            if not torch.equal(tensor, tensors[other]):
                raise WeightsRejectedError(
                    f"{where}: tensor '{other}' differs from '{received[0]}', and the model ties "
                    "them."
                )
        new = _laid_out_as(old, tensor)
        for name in names:
            replace_parameter(module, name, new)


def _laid_out_as(old: Tensor, values: Tensor) -> nn.Parameter:
    """``values`` with the device, dtype and memory layout of ``old``."""
    return nn.Parameter(torch.empty_like(old).copy_(values), requires_grad=False)


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8)
    return memoryview(cast("Any", flat.numpy()))
