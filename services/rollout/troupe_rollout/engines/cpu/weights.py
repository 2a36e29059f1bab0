"""Turns received tensors into a module that serves: LoRA merged, or full weights put in one by one.

Owns the arithmetic of merging and the check of every name and shape. A version shares with the
base all parameters that it does not change, so a LoRA version costs the memory of its target
matrices and a full version costs the whole model.
"""

import re
from collections.abc import Container, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from troupe.errors import WeightsRejectedError
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.weights import TensorSum, TensorView, adapter_scale, read_layout, sums_of
from troupe.runtime.weights.group import TORCH_DTYPES
from troupe.runtime.weights.layout import read_into
from troupe.runtime.weights.manifest import parse_adapter_config
from troupe_rollout.engines.cpu.blocks import WeightBlocks
from troupe_rollout.engines.cpu.model import CpuModel, replace_parameter

_LORA_NAME = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight$")
_TYPES: dict[str, torch.dtype] = {name: getattr(torch, t) for name, t in TORCH_DTYPES.items()}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_UNSUPPORTED = ("use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "modules_to_save")


def load_tensors(path: Path) -> Generator[tuple[str, Tensor]]:
    """The file's tensors one by one, read and not mapped: beside the caller's there is one at a
    time. Raises WeightsRejectedError when it is not safetensors.
    """
    try:
        with path.open("rb", buffering=0) as file:
            for entry in read_layout(path):
                tensor = torch.empty(entry.shape, dtype=_TYPES[entry.dtype])
                file.seek(entry.begin)
                read_into(file, _bytes(tensor), path)
                yield entry.name, tensor
    except (OSError, KeyError) as error:
        raise WeightsRejectedError(
            f"{path} can't be read as safetensors ({error}). Export and send the weights again."
        ) from error


def sum_of_tensor(name: str, tensor: Tensor) -> TensorSum:
    """`troupe.runtime.weights.sums_of` one tensor in memory."""
    view = TensorView(name, _NAMES[tensor.dtype], tuple(tensor.shape), _bytes(tensor))
    return sums_of([view])[0]


def build_module(
    base: CpuModel,
    weights: StagedWeights,
    tensors: Iterable[tuple[str, Tensor]],
    blocks: WeightBlocks,
) -> tuple[Any, list[TensorSum]]:
    """A module of the base's architecture that computes with ``tensors``, and their digests.

    What it does not share with the base is in one of ``blocks``. Full weights are put in as they
    come: beside the module there is one tensor at a time.

    Raises:
        WeightsRejectedError: A tensor is unknown, missing or of the wrong shape; it is named.
    """
    where = f"Weights of policy '{weights.policy}' version {weights.policy_version}"
    module, sums = _twin(base.module, {}), list[TensorSum]()

    def summed() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in tensors:
            sums.append(sum_of_tensor(name, tensor))
            yield name, tensor

    with torch.no_grad():
        if weights.kind == "lora":
            _merge_lora(module, dict(summed()), weights.adapter_config_json, blocks, where)
        else:
            _replace_all(module, summed(), blocks, where)
    return module, sums


def check_full(base: CpuModel, tensors: Iterable[TensorSum], where: str) -> None:
    """Raise WeightsRejectedError unless these are the model's tensors, tied ones at least once."""
    shapes = {tensor.name: tuple(tensor.shape) for tensor in tensors}
    current = dict(base.module.named_parameters(remove_duplicate=False))
    for name, shape in shapes.items():
        _check_fits(current.get(name), name, shape, where)
    _check_complete(_ties(current), shapes, where)


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


def _merge_lora(
    module: Any, tensors: dict[str, Tensor], config_json: str, blocks: WeightBlocks, where: str
) -> None:
    """W + scale * B @ A for every target. Source: LoRA, arXiv 2106.09685, Eq. 3."""
    config, scale = parse_adapter_config(config_json), adapter_scale(config_json)
    if unsupported := [name for name in _UNSUPPORTED if config.get(name)]:
        raise WeightsRejectedError(f"{where} use {unsupported}, which the cpu engine can't merge.")
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if (match := _LORA_NAME.match(name)) is None:
            raise WeightsRejectedError(f"{where}: tensor '{name}' is not a LoRA matrix of a layer.")
        pairs.setdefault(match[1], {})[match[2]] = tensor
    layers = {target: _linear(module, target, where) for target in pairs}
    block = blocks.take([layer.weight for layer in layers.values()])
    for target, pair in pairs.items():
        if pair.keys() != {"A", "B"}:
            raise WeightsRejectedError(
                f"{where}: tensor '{target}.lora_A' or '.lora_B' is missing."
            )
        layer, weight = layers[target], layers[target].weight
        a, b = (pair[side].to(weight.device, torch.float32) for side in "AB")
        if (b.shape[0], *a.shape[1:]) != tuple(weight.shape) or b.shape[1] != a.shape[0]:
            raise WeightsRejectedError(
                f"{where}: tensor '{target}.lora_B' {list(b.shape)} times 'lora_A' {list(a.shape)} "
                f"does not give the layer's {list(weight.shape)}."
            )
        layer.weight = block.put(weight.float() + scale * (b @ a), weight)


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


def _replace_all(
    module: Any, tensors: Iterable[tuple[str, Tensor]], blocks: WeightBlocks, where: str
) -> None:
    """Every parameter as it comes; tied names may be given once or each time."""
    current: dict[str, nn.Parameter] = dict(module.named_parameters(remove_duplicate=False))
    ties, placed = _ties(current), dict[str, nn.Parameter]()
    block = blocks.take([current[names[0]] for names in ties])
    names_of = {name: names for names in ties for name in names}
    for name, tensor in tensors:
        _check_fits(current.get(name), name, tuple(tensor.shape), where)
        if twin := next((other for other in names_of[name] if other in placed), None):
            if not torch.equal(tensor.to(placed[twin]), placed[twin]):
                raise WeightsRejectedError(
                    f"{where}: tensor '{name}' differs from '{twin}', and the model ties them."
                )
            continue
        placed[name] = block.put(tensor, current[name])
        for tied in names_of[name]:
            replace_parameter(module, tied, placed[name])
    _check_complete(ties, placed, where)


def _ties(parameters: dict[str, nn.Parameter]) -> list[list[str]]:
    """The names of each parameter."""
    ties: dict[int, list[str]] = {}
    for name, parameter in parameters.items():
        ties.setdefault(id(parameter), []).append(name)
    return list(ties.values())


def _check_fits(old: nn.Parameter | None, name: str, shape: tuple[int, ...], where: str) -> None:
    if old is None:
        raise WeightsRejectedError(f"{where}: tensor '{name}' is unknown to the model.")
    if shape != tuple(old.shape):
        raise WeightsRejectedError(
            f"{where}: tensor '{name}' is {list(shape)} and the model wants {list(old.shape)}."
        )


def _check_complete(ties: list[list[str]], received: Container[str], where: str) -> None:
    for names in ties:
        if not any(name in received for name in names):
            raise WeightsRejectedError(f"{where}: tensor '{names[0]}' is missing.")


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8)
    return memoryview(cast("Any", flat.numpy()))
