"""Represents a model without an adapter as a LoRA that changes nothing.

Engines serve versions, and a version is an adapter. Owns the two files that stand for the base
model: a LoRA without matrices, and one of zeros for engines that need a matrix for every layer.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from troupe.errors import WeightsRejectedError
from troupe.publishing.hub_cache import cached_model
from troupe.runtime.engines.engine import Engine, StagedWeights
from troupe.runtime.weights import read_layout
from troupe.spec.vision import takes_images
from troupe.vision.names import module_name

_RANK = 1
_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_CONFIG = json.dumps(
    {"peft_type": "LORA", "r": _RANK, "lora_alpha": 1, "target_modules": list(_LAYERS)}
)


async def stage_bare(engine: Engine, policy: str, model: str, folder: Path) -> None:
    """Stage the base ``model`` as version 0 of ``policy``; files go to ``folder``.

    ``model`` is a folder, or a hub id that ``engine`` has fetched.

    Raises WeightsRejectedError when the engine accepts neither form.
    """
    path = folder / f"{policy}.safetensors"
    staged = StagedWeights(policy, 0, "lora", path, _CONFIG)
    write_zeros(path, {})
    try:
        await engine.stage(staged)
    except WeightsRejectedError:
        shapes = zero_shapes(_folder(model))
        if not shapes:
            raise
        write_zeros(path, shapes)
        await engine.stage(staged)


def _folder(model: str) -> Path:
    """Where the files of a model are: a folder, or the hub client's cache."""
    folder = Path(model).expanduser()
    cached = None if folder.is_dir() else cached_model(model)
    return cached.folder if cached else folder


def zero_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a rank-1 adapter on every linear layer of a model folder.

    Of a model that takes images on those of its language model, as a trainer's adapter is.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    sees = takes_images(str(model))
    for file in sorted(model.glob("*.safetensors")):
        for tensor in read_layout(file):
            name = module_name(tensor.name) if sees else tensor.name
            target, _, leaf = name.rpartition(".")
            if ".visual." in name or leaf != "weight":
                continue
            if target.rpartition(".")[2] in _LAYERS:
                rows, columns = tensor.shape
                prefix = f"base_model.model.{target}"
                shapes[f"{prefix}.lora_A.weight"] = (_RANK, columns)
                shapes[f"{prefix}.lora_B.weight"] = (rows, _RANK)
    return shapes


def write_zeros(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write a safetensors file of float32 zeros.

    Source: https://github.com/huggingface/safetensors, "Format".
    """
    header: dict[str, object] = {}
    position = 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * shape[1]
        offsets = [position, position + size]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + position)
