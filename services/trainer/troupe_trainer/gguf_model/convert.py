"""Writes a GGUF model as a folder of bfloat16 safetensors with tokenizer and chat template.

transformers reads the file and unpacks its blocks. Its ``save_pretrained`` refuses a model that
came from GGUF, so the weights are written here, and the config loses its note of the quantization.
The folder appears whole or not at all. The same file gives the same bytes of weights.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from troupe.durable import make_once
from troupe.errors import ConflictError, InvalidArgumentError
from troupe_trainer.gguf_model.header import GgufHeader, read_header

PROVENANCE = "provenance.json"
_WEIGHTS = "model.safetensors"
_FORMAT = 1
"""Raised when the same file would give other bytes than before."""


@dataclass(frozen=True, slots=True)
class GgufOrigin:
    """Where a GGUF file came from; an empty ``licence`` means the one that the file names."""

    origin: str
    licence: str = ""
    licence_text: str = ""


def convert(file: Path, folder: Path, source: GgufOrigin) -> bool:
    """Write the model of ``file`` to ``folder``; True when written, False when it is there already.

    Raises:
        InvalidArgumentError: the file is no GGUF of a language model that transformers reads.
        ConflictError: ``folder`` holds something that was not made from a GGUF file.
    """
    header = read_header(file)
    digest = sha256_of(file)

    def write(draft: Path) -> None:
        model, tokenizer = _load(file, header)
        _write_model(draft, model, tokenizer)
        if source.licence_text:
            (draft / "LICENSE").write_text(source.licence_text, encoding="utf-8")
        note = {
            "format": _FORMAT,
            "origin": source.origin,
            "gguf": file.name,
            "gguf_sha256": digest,
            "licence": source.licence or header.licence or "unknown: ask its publisher",
            "header": asdict(header),
            "parameters": model.num_parameters(),
            "weights_sha256": sha256_of(draft / _WEIGHTS),
            "made_with": {name: version(name) for name in ("troupe", "transformers", "gguf")},
        }
        (draft / PROVENANCE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")

    return make_once(folder, lambda: _is_there(folder, digest), write)


def sha256_of(file: Path) -> str:
    """Hex digest of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _is_there(folder: Path, digest: str) -> bool:
    """Whether ``folder`` is what the file with ``digest`` gives."""
    if not folder.exists():
        return False
    try:
        note = json.loads((folder / PROVENANCE).read_text("utf-8"))
        return (note["gguf_sha256"], note["format"]) == (digest, _FORMAT)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if folder.is_dir() and not any(folder.iterdir()):
            return False
        raise ConflictError(
            f"{folder} exists and was not made from a GGUF file, so it is left alone; give another "
            "folder with --to, or remove that one."
        ) from error


def _load(file: Path, header: GgufHeader) -> tuple[Any, Any]:
    """The model with unpacked weights, and its tokenizer."""
    transformers_logging.disable_progress_bar()
    place: dict[str, Any] = {"gguf_file": file.name}
    more: dict[str, Any] = {"dtype": torch.bfloat16}
    if (packing := getattr(transformers, "GgufConfig", None)) is not None:
        more["quantization_config"] = packing(dequantize=True)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(file.absolute().parent, **place)
        model: Any = AutoModelForCausalLM.from_pretrained(file.absolute().parent, **place, **more)
    except Exception as error:  # transformers raises many types for what it can't read
        detail = " ".join(str(error).split())[:400]
        raise InvalidArgumentError(
            f"transformers {version('transformers')} can't read {file} ({type(error).__name__}: "
            f"{detail}). Its architecture is {header.architecture!r}, its formats are "
            f"{', '.join(header.tensor_types)}. Take a GGUF of an architecture that transformers "
            "reads (llama, qwen2, qwen3, ...), or the model's safetensors."
        ) from error
    return model, tokenizer


def _write_model(draft: Path, model: Any, tokenizer: Any) -> None:
    draft.mkdir(parents=True)
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(model).__name__]  # SGLang chooses its model class by it
    config.save_pretrained(draft)
    model.generation_config.save_pretrained(draft)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(draft)
    tied: set[str] = set(model.all_tied_weights_keys or ())
    tensors: dict[str, Tensor] = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name not in tied
    }
    save_file(tensors, draft / _WEIGHTS, metadata={"format": "pt"})
    (draft / _WEIGHTS).chmod(0o644)
