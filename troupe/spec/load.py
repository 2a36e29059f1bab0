"""Reads a JobSpec from a mapping, a YAML text or a YAML file; every fault becomes an Issue.

A document may be untrusted: its size and depth are checked before anything walks it, and values
that JSON can't hold are refused, because a spec is stored and sent as JSON.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from troupe.spec.issues import Issue, SpecInvalidError, issues_of, pointer_of
from troupe.spec.job import JobSpec

MAX_DEPTH = 64
"""Maximum nesting of lists and mappings; the JSON encoder refuses more than 255."""
MAX_VALUES = 100_000
"""Maximum values with aliases expanded: a few lines of YAML can stand for millions."""
MAX_YAML_BYTES = 1 << 16
"""A larger document takes the YAML parser seconds; JSON is read much faster."""
_MERGE = "tag:yaml.org,2002:merge"


class _PlainLoader(yaml.SafeLoader):
    """Reads plain values and refuses merge keys: ``<<`` copies what an alias only references.

    Each nested merge multiplies the pairs before it, so 400 bytes can stand for billions.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Called for each mapping before its construction."""
        for key, _ in node.value:
            if key.tag == _MERGE:
                raise yaml.constructor.ConstructorError(
                    None, None, "merge keys (<<) are not read; write the fields out", key.start_mark
                )
        super().flatten_mapping(node)


def plain_yaml(text: str | bytes) -> Any:
    """The document in ``text`` as plain values; raises YAMLError, as PyYAML does.

    Reads every YAML text of a spec.
    """
    return yaml.load(text, Loader=_PlainLoader)


def parse_spec(document: Any, *, source: str = "job spec") -> JobSpec:
    """The spec in ``document``; raises SpecInvalidError with all faults."""
    if not isinstance(document, Mapping):
        raise SpecInvalidError([Issue("", "must be a mapping of fields")], source=source)
    if (fault := next(_faults(document), None)) is not None:
        raise SpecInvalidError([fault], source=source)
    try:
        return JobSpec.model_validate(document)
    except ValidationError as error:
        raise SpecInvalidError(issues_of(error, JobSpec), source=source) from error


def read_yaml(text: str | bytes, *, source: str = "job spec") -> Any:
    """The document in ``text``; raises SpecInvalidError for any fault."""
    try:
        if len(text) > MAX_YAML_BYTES:
            raise ValueError(f"it has {len(text)} bytes and {MAX_YAML_BYTES} are read; use JSON")
        return plain_yaml(text)
    # Invalid dates and numbers raise ValueError, and so do bytes that are not UTF-8.
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        why = str(error) or type(error).__name__
        raise SpecInvalidError([Issue("", f"not valid YAML: {why}")], source=source) from error


def load_spec(path: Path) -> JobSpec:
    """The spec in a YAML or JSON file; raises SpecInvalidError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecInvalidError(
            [Issue("", f"cannot read the file: {error.strerror}; check the path")], source=str(path)
        ) from error
    return parse_spec(read_yaml(text, source=str(path)), source=str(path))


def _faults(document: Mapping[Any, Any]) -> Iterator[Issue]:
    """Values that can't be walked or stored; a document that contains itself is too deep."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), document)]
    num_values = 0
    while waiting:
        path, value = waiting.pop()
        num_values += 1
        if num_values > MAX_VALUES:
            yield Issue("", f"holds more than {MAX_VALUES} values; make it smaller")
            return
        if len(path) > MAX_DEPTH:
            yield Issue(_storable(path), f"nested more than {MAX_DEPTH} deep; make it flatter")
            return
        if why := _why_not_json(value):
            yield Issue(_storable(path), why)
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[Any, Any]", value).items():
                if why := _why_no_name(key):
                    yield Issue(_storable(path), why)
                waiting.append(((*path, key), item))
        elif isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            waiting += [((*path, index), item) for index, item in enumerate(items)]


def _why_not_json(value: Any) -> str:
    if isinstance(value, str):
        return "" if _is_text(value) else "the text holds a lone surrogate, which is no character"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no number of JSON; give a finite one"
    if isinstance(value, date | bytes | set):
        return f"YAML reads this as a {type(value).__name__}, which JSON can't hold; put quotes"
    return ""


def _why_no_name(key: Any) -> str:
    if not isinstance(key, str):
        return f"the name {str(key)[:80]!r} is a {type(key).__name__} and not text; put quotes"
    return "" if _is_text(key) else "a name holds a lone surrogate, which is no character"


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _storable(path: tuple[Any, ...]) -> str:
    return pointer_of(path).encode("utf-8", "replace").decode("utf-8")
