"""Versions on disk: received files, checked against the base model and stored in SGLang's format.

Owns the work folder. A version's folder exists from its staging until it has left the engine, since
a restarted server loads it from there again.
"""

import itertools
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from troupe.errors import InvalidArgumentError, UnavailableError, WeightsRejectedError
from troupe.runtime.engines.engine import StagedWeights
from troupe.runtime.engines.presets import LORA_TARGETS
from troupe.runtime.weights import (
    adapter_scale,
    file_tensors,
    header_bytes_of,
    read_layout,
    sums_of,
)
from troupe.runtime.weights.manifest import parse_adapter_config
from troupe.spec.policy import LoraSpec
from troupe.vision.names import module_name, served_name
from troupe_rollout.engines.sglang.model import SglangModel
from troupe_rollout.engines.versions import held_digest
from troupe_rollout.held_folder import HeldFolder

_PREFIX = "troupe-servers-"
_LORA_NAME = re.compile(r"^base_model\.model\.(.+)\.lora_([AB])\.weight$")
_UNSUPPORTED = (
    "use_dora",
    "fan_in_fan_out",
    "lora_bias",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layers_to_transform",
)


class WorkFolder:
    """The folder of versions and server logs; ``close`` removes it."""

    def __init__(self, parent: str) -> None:
        self._parent = Path(parent or tempfile.gettempdir())
        self._counter = itertools.count(1)
        self._nonce = uuid.uuid4().hex[:8]
        self._folder: HeldFolder | None = None

    @property
    def path(self) -> Path:
        """The folder, created on first use."""
        if self._folder is None:
            self._folder = self._make()
        return self._folder.path

    def new_name(self, policy: str, policy_version: int) -> str:
        """A name that is never used twice, so that no cache can mix two loads of one version."""
        return f"{policy}@{policy_version}-{self._nonce}-{next(self._counter)}"

    def close(self) -> None:
        """Remove everything."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _make(self) -> HeldFolder:
        try:
            return HeldFolder(self._parent, _PREFIX)
        except OSError as error:
            raise InvalidArgumentError(
                f"The work folder {self._parent} can't be written ({error}). Set "
                "TROUPE_ROLLOUT_SGLANG_WORK_DIR to a folder that can."
            ) from error


def lora_targets(spec: LoraSpec) -> tuple[str, ...]:
    """Leaf names of the layers that get an adapter.

    SGLang fuses q, k and v into one matrix and gate and up into another, and loses a lone k, v or
    up silently: such sets are refused.
    """
    if spec.targets == "all-linear":
        return LORA_TARGETS
    layers = {target.rsplit(".", 1)[-1] for target in spec.targets}
    if unknown := sorted(layers - set(LORA_TARGETS)):
        raise InvalidArgumentError(
            f"LoRA targets {unknown} are not served by engine 'sglang'; it serves "
            f"{list(LORA_TARGETS)}. Correct `train.targets` of the policy."
        )
    if layers & {"q_proj", "k_proj", "v_proj"} and not {"q_proj", "v_proj"} <= layers:
        raise InvalidArgumentError(
            f"LoRA targets {sorted(layers)} split the fused attention matrix: SGLang needs both "
            "q_proj and v_proj where one of q_proj, k_proj, v_proj is trained. Add them."
        )
    if "up_proj" in layers and "gate_proj" not in layers:
        raise InvalidArgumentError(
            "LoRA target up_proj needs gate_proj as well: SGLang fuses the two. Add it."
        )
    return tuple(name for name in LORA_TARGETS if name in layers)


def check_adapter(base: SglangModel, weights: StagedWeights, spec: LoraSpec) -> None:
    """Raises WeightsRejectedError, naming the tensor, unless it is this policy's adapter."""
    where = f"Weights of policy '{weights.policy}' version {weights.policy_version}"
    if weights.kind != "lora":
        raise WeightsRejectedError(f"{where} are full weights, and the policy trains an adapter.")
    config = parse_adapter_config(weights.adapter_config_json)
    if int(config["r"]) != spec.rank:
        raise WeightsRejectedError(
            f"{where} are an adapter of rank {config['r']}; the policy's rank is {spec.rank}."
        )
    if unsupported := [name for name in _UNSUPPORTED if config.get(name)]:
        raise WeightsRejectedError(f"{where} use {unsupported}, which engine 'sglang' can't serve.")
    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in read_layout(weights.path):
        if (match := _LORA_NAME.match(tensor.name)) is None:
            raise WeightsRejectedError(f"{where}: tensor '{tensor.name}' is no LoRA matrix.")
        sides.setdefault(match[1], {})[match[2]] = tensor.shape
    expected = {
        name.removesuffix(".weight")
        for name in base.tensors
        if name.removesuffix(".weight").rsplit(".", 1)[-1] in lora_targets(spec)
        and name.endswith(".weight")
        and ".visual." not in name
    }
    for target in sorted(expected ^ sides.keys()):
        word = "is missing" if target in expected else "has no layer in the model, or no target is"
        raise WeightsRejectedError(f"{where}: tensor '{target}.lora_A' {word}.")
    for target, pair in sides.items():
        out, into = base.tensors[f"{target}.weight"]
        if pair.get("A") != (spec.rank, into) or pair.get("B") != (out, spec.rank):
            raise WeightsRejectedError(
                f"{where}: tensors '{target}.lora_A' {list(pair.get('A', ()))} and '.lora_B' "
                f"{list(pair.get('B', ()))} do not fit the layer's {[out, into]} at rank "
                f"{spec.rank}. The adapter belongs to another base model."
            )


def check_full(base: SglangModel, weights: StagedWeights) -> None:
    """Raises WeightsRejectedError, naming the tensor, unless every weight of the model is there."""
    where = f"Weights of policy '{weights.policy}' version {weights.policy_version}"
    if weights.kind != "full":
        raise WeightsRejectedError(f"{where} are an adapter, and the policy trains all weights.")
    check_shapes(base, where, {tensor.name: tensor.shape for tensor in read_layout(weights.path)})


def check_shapes(base: SglangModel, where: str, shapes: Mapping[str, Sequence[int]]) -> None:
    """The same check for the names and shapes of tensors before they arrive."""
    optional = {"lm_head.weight"} if base.shape.is_tied else set[str]()
    if missing := sorted(base.tensors.keys() - shapes.keys() - optional):
        raise WeightsRejectedError(f"{where}: tensor '{missing[0]}' is missing.")
    if unknown := sorted(shapes.keys() - base.tensors.keys() - optional):
        raise WeightsRejectedError(f"{where}: tensor '{unknown[0]}' is unknown to the model.")
    for name, shape in shapes.items():
        if name in base.tensors and tuple(shape) != base.tensors[name]:
            raise WeightsRejectedError(
                f"{where}: tensor '{name}' is {list(shape)} and the model wants "
                f"{list(base.tensors[name])}."
            )


def keep_adapter(weights: StagedWeights, folder: Path) -> str:
    """Write the folder that SGLang loads; the digest of the tensors in it, read back.

    SGLang scales by lora_alpha / r regardless of ``use_rslora``, so alpha is adjusted.
    """
    config = parse_adapter_config(weights.adapter_config_json)
    config |= {
        "lora_alpha": adapter_scale(weights.adapter_config_json) * int(config["r"]),
        "use_rslora": False,
    }
    try:
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text(json.dumps(config, sort_keys=True))
        path = _keep(weights.path, folder / "adapter_model.safetensors")
    except OSError as error:
        raise _full_disk(folder, error) from error
    return _checked(weights, path)


def keep_full(base: SglangModel, weights: StagedWeights, folder: Path) -> str:
    """Write the folder that SGLang loads; the digest of the tensors in it, read back."""
    try:
        folder.mkdir(parents=True)
        shutil.copyfile(base.folder / "config.json", folder / "config.json")
        keep = _keep if base.vision is None else _keep_renamed
        path = keep(weights.path, folder / "model.safetensors")
    except OSError as error:
        raise _full_disk(folder, error) from error
    return _checked(weights, path, takes_images=base.vision is not None)


def _checked(weights: StagedWeights, path: Path, *, takes_images: bool = False) -> str:
    """The digest of a stored file, read back; a file with a wrong tensor is removed at once."""
    try:
        sums = sums_of(file_tensors(path))
        if takes_images:
            sums = [replace(tensor, name=module_name(tensor.name)) for tensor in sums]
        return held_digest(weights, sums)
    except WeightsRejectedError:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise


def _keep(source: Path, target: Path) -> Path:
    """Link the received file, which its receiver deletes, or copy it across file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return target


def _keep_renamed(source: Path, target: Path) -> Path:
    """Copy the received file, with the names that SGLang's loader knows."""
    tensors = list(file_tensors(source))
    with target.open("wb") as file:
        file.write(
            header_bytes_of([(served_name(t.name), t.dtype, tuple(t.shape)) for t in tensors])
        )
        for tensor in tensors:
            file.write(tensor.data)
    return target


def _full_disk(folder: Path, error: OSError) -> UnavailableError:
    shutil.rmtree(folder, ignore_errors=True)
    return UnavailableError(
        f"New weights can't be kept in {folder} ({error}). Free space there, or set "
        "TROUPE_ROLLOUT_SGLANG_WORK_DIR; the old version serves on."
    )
