"""Turns faults of a spec into errors, each with a JSON pointer and a hint."""

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from troupe.errors import InvalidArgumentError

MAX_ISSUES = 50
"""Maximum faults reported per document."""
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault: where (JSON pointer), what, and how to correct it.

    Example: ``Issue("/agents/tool/policy", "no policy is called 'shraed'; did you mean ...")``.
    """

    pointer: str
    message: str

    @property
    def path(self) -> tuple[str | int, ...]:
        """The pointer as a path of keys."""
        return tuple(p.replace("~1", "/").replace("~0", "~") for p in self.pointer.split("/")[1:])


class SpecInvalidError(InvalidArgumentError):
    """A job spec that cannot run; ``issues`` lists its faults."""

    reason = "SPEC_INVALID"

    def __init__(self, issues: Sequence[Issue], *, source: str = "job spec") -> None:
        lines = "\n".join(f"  {i.pointer or '/'}: {i.message}" for i in issues)
        super().__init__(f"{source} is invalid:\n{lines}", pointer=issues[0].pointer)
        self.issues = tuple(issues)


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known name, or lists them all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names) or 'none'}"


def raise_if_any(title: str, issues: Sequence[Issue]) -> None:
    """Raise pydantic's own error for ``issues``, so that they join the field errors."""
    if issues:
        raise ValidationError.from_exception_data(
            title,
            [
                InitErrorDetails(
                    type=PydanticCustomError(
                        "troupe", "{text}", {"text": i.message, "pointer": i.pointer}
                    ),
                    loc=i.path,
                    input=None,
                )
                for i in issues
            ],
        )


def issues_of(error: ValidationError, model: type[BaseModel]) -> list[Issue]:
    """One issue for each pydantic error, MAX_ISSUES at most, with a hint for misspelt fields."""
    errors = error.errors(include_url=False)
    issues = [_issue(dict(e), model) for e in errors[:MAX_ISSUES]]
    if len(errors) > MAX_ISSUES:
        issues.append(Issue("", f"{len(errors) - MAX_ISSUES} more faults; correct these first"))
    return issues


def pointer_of(path: Sequence[str | int]) -> str:
    """RFC 6901 pointer of a path of keys."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in path)


def _issue(error: Mapping[str, Any], model: type[BaseModel]) -> Issue:
    path: list[str | int] = [p for p in error["loc"] if p not in ("lora", "full")]
    message = str(error["msg"])
    if error["type"] == "extra_forbidden":
        known = _fields_at(model, path[:-1])
        message = f"unknown field; {suggest(str(path[-1]), known)}"
    elif error["type"] == "missing":
        message = "this field is required"
    elif error.get("input") is not None and not isinstance(error["input"], (dict, list)):
        message = f"{message} (got {_shown(error['input'])})"
    return Issue(pointer_of(path), message)


def _shown(value: Any) -> str:
    """``value`` as written, truncated if long."""
    if isinstance(value, int) and value.bit_length() > 4 * _MAX_SHOWN:
        return f"a number of more than {_MAX_SHOWN} digits"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


@functools.lru_cache(maxsize=32)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Cached, because making the schema takes longer than everything else."""
    return model.model_json_schema()


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """Field names of the schema object that ``path`` leads to."""
    schema = _schema(model)
    defs = schema.get("$defs", {})
    nodes: list[dict[str, Any]] = [schema]
    for key in path:
        following: list[dict[str, Any]] = []
        for node in nodes:
            following.extend(_resolve(_child(node, str(key)), defs))
        nodes = following
    return {name for node in nodes for name in node.get("properties", {})}


def _child(node: dict[str, Any], key: str) -> dict[str, Any]:
    """Schema of one key: a field, or the value type of a map."""
    maps = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    options = [node.get("properties", {}).get(key), *maps]
    return next((o for o in options if isinstance(o, dict)), {})


def _resolve(node: dict[str, Any], defs: dict[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in node:
        return [defs[node["$ref"].rsplit("/", 1)[-1]]]
    options = [*node.get("oneOf", []), *node.get("anyOf", []), *node.get("allOf", [])]
    return [schema for option in options for schema in _resolve(option, defs)] or [node]
