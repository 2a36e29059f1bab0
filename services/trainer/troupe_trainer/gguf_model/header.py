"""Reads what a GGUF file says about itself, before any weight is read.

Owns the errors of a file that is no usable GGUF. Never computes and never writes.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError

_MAGIC = b"GGUF"
_NEEDS = "Reading GGUF needs the package gguf; install it: pip install 'troupe[gguf,trainer]'."


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Facts of one GGUF file; a text that the file leaves out is empty.

    ``tensor_types`` counts the tensors of each number format (``{"Q4_1": 210, "F32": 61}``).
    """

    architecture: str
    name: str
    licence: str
    tensor_types: dict[str, int]
    has_chat_template: bool


def read_header(file: Path) -> GgufHeader:
    """The header of ``file``.

    Raises:
        InvalidArgumentError: there is no such file, it is no GGUF or is damaged, or the package
            that reads it is missing.
    """
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(_MAGIC))
    except OSError as error:
        raise InvalidArgumentError(
            f"{file} can't be read ({error.strerror}); name a GGUF file."
        ) from error
    if magic != _MAGIC:
        raise InvalidArgumentError(
            f"{file} is no GGUF file: it begins with {magic!r}, not {_MAGIC!r}. A folder of "
            "safetensors needs no conversion: name it as `model` of a policy."
        )
    reader = _reader(file)
    architecture = _text(reader, "general.architecture")
    if not architecture or not reader.tensors:
        raise InvalidArgumentError(
            f"{file} holds {len(reader.tensors)} tensors of architecture {architecture!r}; a "
            "language model has both. It may be one part of a split file, or a vocabulary alone."
        )
    if int(_value(reader, "split.count") or 1) > 1:
        raise InvalidArgumentError(
            f"{file} is one part of a split model. Join the parts first (llama-gguf-split --merge)."
        )
    return GgufHeader(
        architecture=architecture,
        name=_text(reader, "general.name"),
        licence=_text(reader, "general.license"),
        tensor_types=dict(Counter(tensor.tensor_type.name for tensor in reader.tensors)),
        has_chat_template=bool(_text(reader, "tokenizer.chat_template")),
    )


def _reader(file: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise InvalidArgumentError(_NEEDS) from error
    try:
        return GGUFReader(file)
    except Exception as error:  # a damaged file raises ValueError, IndexError and others
        raise InvalidArgumentError(
            f"{file} is damaged or cut short ({type(error).__name__}: {error}). Fetch it again."
        ) from error


def _value(reader: Any, key: str) -> Any:
    field = reader.fields.get(key)
    return None if field is None else field.contents()


def _text(reader: Any, key: str) -> str:
    value = _value(reader, key)
    return value if isinstance(value, str) else ""
