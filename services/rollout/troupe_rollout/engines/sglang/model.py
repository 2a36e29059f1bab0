"""The sidecar's knowledge of a base model: tokenizer, shape, tensors, how it takes images.

Owns reading the model folder. Loads no weights: that is SGLang's work.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from troupe.errors import InvalidArgumentError, WeightsRejectedError
from troupe.runtime.engines.presets import ModelShape, check_preset, language_config, shape_of
from troupe.runtime.weights import read_layout
from troupe.spec.policy import PolicySpec
from troupe.spec.tower import TowerShape, tower_shape
from troupe.vision.model import VisionModel, vision_model_of
from troupe.vision.names import module_name

_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")


@dataclass(frozen=True, slots=True)
class SglangModel:
    """One model as it was found on disk.

    ``tensors`` are the shapes in its safetensors files, by their names in transformers' module;
    ``vision`` and ``tower`` are those of a model that takes images.
    """

    name: str
    folder: Path
    tokenizer: Any
    shape: ModelShape
    context_length: int
    end_token_ids: tuple[int, ...]
    tensors: dict[str, tuple[int, ...]]
    vision: VisionModel | None = None
    tower: TowerShape | None = None


def read_base(spec: PolicySpec) -> SglangModel:
    """Raises InvalidArgumentError, in words for the user, when the model can't be served."""
    folder = _folder(spec.model)
    transformers_logging.disable_progress_bar()
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        vision = _vision(folder, config, spec.model)
        shape, tower = shape_of(config, spec.model), tower_shape(config)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        tensors = _tensors(folder)
        if vision is not None:
            tensors = {module_name(name): found for name, found in tensors.items()}
    except (OSError, ValueError, KeyError, WeightsRejectedError) as error:
        detail = " ".join(str(error).split())[:400]
        raise InvalidArgumentError(
            f"Model '{spec.model}' can't be read ({type(error).__name__}: {detail}). It must be a "
            "folder or hub id with config.json, safetensors weights and a tokenizer."
        ) from error
    check_preset(spec.model, shape)
    language = language_config(config)
    return SglangModel(
        name=spec.model,
        folder=folder,
        tokenizer=tokenizer,
        shape=shape,
        context_length=int(language["max_position_embeddings"]),
        end_token_ids=_end_tokens(folder, language, tokenizer),
        tensors=tensors,
        vision=vision,
        tower=tower,
    )


def _vision(folder: Path, config: dict[str, Any], model: str) -> VisionModel | None:
    """How the model takes images; raises InvalidArgumentError for a kind that is not known."""
    if "vision_config" not in config:
        return None
    path = folder / "preprocessor_config.json"
    preprocessor = json.loads(path.read_text()) if path.exists() else {}
    return vision_model_of(model, config, preprocessor)


def _folder(model: str) -> Path:
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if model.startswith(("/", ".", "~")):
        raise InvalidArgumentError(
            f"Model path '{model}' is not a folder on the machine of the rollout service. Make the "
            "model there (`troupe model tiny`), or correct `model` of the policy in the job spec."
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(_FILES)))
    except Exception as error:  # the hub's client raises many types
        detail = " ".join(str(error).split())[:400]
        raise InvalidArgumentError(
            f"Model '{model}' is neither a folder nor can it be fetched from the hub "
            f"({type(error).__name__}: {detail})."
        ) from error


def _tensors(folder: Path) -> dict[str, tuple[int, ...]]:
    shapes = {
        tensor.name: tensor.shape
        for path in sorted(folder.glob("*.safetensors"))
        for tensor in read_layout(path)
    }
    if not shapes:
        raise ValueError("there is no .safetensors file in it")
    return shapes


def _end_tokens(folder: Path, config: dict[str, Any], tokenizer: Any) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    generation: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    values: list[Any] = [
        generation.get("eos_token_id"),
        config.get("eos_token_id"),
        tokenizer.eos_token_id,
    ]
    token_ids: set[int] = set()
    for value in values:
        token_ids.update([value] if isinstance(value, int) else value or [])
    return tuple(sorted(token_ids))
