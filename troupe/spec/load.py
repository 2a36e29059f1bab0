"""Reads a JobSpec from a mapping, a YAML text or a YAML file; every fault becomes an Issue.

A document may be untrusted: its size and depth are checked before anything walks it, and values
that JSON can't hold are refused, because a spec is stored and sent as JSON.
"""

import ast
import json
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
MAX_VALUES = 10_000
"""Maximum values, written and with aliases expanded: a few lines of YAML can stand for millions."""
MAX_YAML_BYTES = 1 << 16
"""Maximum size of a YAML document; a larger one is written as JSON, which is read much faster."""
MAX_YAML_NUMBER = 100
"""Maximum characters of a number: one in base 60 (``1:5:5``) costs its length squared."""
_MERGE = "tag:yaml.org,2002:merge"
# libyaml's parser is ten times as fast; the same document in Python alone costs that much more.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_Loader):
    """Reads plain values; refuses merge keys, endless numbers and what is no single document.

    Merge keys (``<<``) copy what an alias only references: each nested one multiplies the pairs
    before it, so 400 bytes can stand for billions.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Called for each mapping before its construction."""
        for key, _ in node.value:
            if key.tag == _MERGE:
                raise yaml.constructor.ConstructorError(
                    None, None, "merge keys (<<) are not read; write the fields out", key.start_mark
                )
        super().flatten_mapping(node)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """An integer or a float; raises ConstructorError for a longer one than is read."""
        if len(node.value) > MAX_YAML_NUMBER:
            why = f"a number of {len(node.value)} characters; {MAX_YAML_NUMBER} are read"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)
        is_int = node.tag == "tag:yaml.org,2002:int"
        number: int | float = (
            self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)
        )
        return number


for _kind in ("int", "float"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _PlainLoader.construct_number)


def plain_yaml(text: str | bytes) -> Any:
    """The document in ``text`` as plain values; raises YAMLError, as PyYAML does.

    Reads every YAML text that a user writes. Size, depth and number of values are checked on the
    parser's events, before values are made of them: making them is recursive, and libyaml's way
    of it ends the process some thousand levels deep.
    """
    if len(text) > MAX_YAML_BYTES:
        raise yaml.YAMLError(f"it has {len(text)} bytes and {MAX_YAML_BYTES} are read; use JSON")
    depth = num_values = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            num_values += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} deep; make it flatter")
        # Names count here and not in a walk, so twice as many are read.
        if num_values > 2 * MAX_VALUES:
            raise yaml.YAMLError(f"it holds more than {MAX_VALUES} values; make it smaller")
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
        return plain_yaml(text)
    # Invalid dates and numbers raise ValueError, and so do bytes that are not UTF-8.
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        why = str(error) or type(error).__name__
        raise SpecInvalidError([Issue("", f"not valid YAML: {why}")], source=source) from error


def load_spec(path: str | Path) -> JobSpec:
    """The spec in a YAML or JSON file; raises SpecInvalidError."""
    return parse_spec(read_file(Path(path).expanduser()), source=str(path))


def read_file(path: Path) -> Any:
    """The document in a JSON (``.json``) or YAML file; raises SpecInvalidError for any fault."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecInvalidError(
            [Issue("", f"cannot read the file: {error.strerror}; check the path")], source=str(path)
        ) from error
    if path.suffix == ".py":
        raise SpecInvalidError([Issue("", _python_fault(path, text))], source=str(path))
    if path.suffix != ".json":
        return read_yaml(text, source=str(path))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise SpecInvalidError([Issue("", f"not valid JSON: {why}")], source=str(path)) from error


def _python_fault(path: Path, text: bytes) -> str:
    """How a task in a Python file is named, where a spec was asked for."""
    try:
        defined = [n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        defined = []
    which = f"{path}:{defined[0]}" if len(defined) == 1 else f"{path}:CLASS"
    classes = f" (its classes: {', '.join(defined)})" if len(defined) > 1 else ""
    return (
        f"this is Python, and no job spec; a task in it is called '{which}'{classes}: dry-run it "
        "by this name, or make it the task.name of a spec (`troupe init --task`)"
    )


def _faults(document: Mapping[Any, Any]) -> Iterator[Issue]:
    """Values that can't be walked or stored; a document that contains itself is too deep."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), document)]
    num_values = 1
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping | list | tuple):
            num_values += len(cast("list[Any]", value))
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
