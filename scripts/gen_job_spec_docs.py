"""Writes docs/job-spec.md from JobSpec's JSON schema: ``gen_job_spec_docs.py OUT``."""

import json
import sys
from pathlib import Path
from typing import Any

from troupe.spec import JobSpec

HEADER = """\
# Job specification

Generated from `troupe/spec/` by `make generate`; do not edit.

A job spec is a YAML (or JSON) file, or the body of `POST /v1/jobs`. Unknown fields are errors.
`troupe validate spec.yaml` checks a file, `troupe schema` prints the JSON schema for an editor.
"""


def main() -> None:
    """Write the page to the path in the first argument."""
    schema = JobSpec.model_json_schema()
    defs: dict[str, dict[str, Any]] = schema.get("$defs", {})
    order = ["JobSpec", *reachable(schema, defs)]
    objects = {"JobSpec": schema, **defs}
    pages = [HEADER, *(section(name, objects[name]) for name in order)]
    Path(sys.argv[1]).write_text("\n".join(pages), encoding="utf-8")


def reachable(schema: dict[str, Any], defs: dict[str, dict[str, Any]]) -> list[str]:
    """Names of the objects that the schema refers to, breadth first in field order."""
    names: list[str] = []
    pending = [schema]
    while pending:
        for name in _refs(pending.pop(0).get("properties", {})):
            if name not in names:
                names.append(name)
                pending.append(defs[name])
    return names


def _refs(node: Any) -> list[str]:
    if isinstance(node, dict):
        names = [node["$ref"].rsplit("/", 1)[-1]] if "$ref" in node else []
        for key, value in node.items():
            names += [] if key == "discriminator" else _refs(value)
        return names
    if isinstance(node, list):
        return [ref for value in node for ref in _refs(value)]
    return []


def section(name: str, schema: dict[str, Any], *, level: int = 2) -> str:
    """One object: what it is, and a table of its fields."""
    required = set(schema.get("required", []))
    rows = "\n".join(
        f"| `{field}` | {type_of(node)} | {_default(field, node, required)} | {text_of(node)} |"
        for field, node in schema.get("properties", {}).items()
    )
    about = " ".join(str(schema.get("description", "")).split())
    head = "| field | type | default | meaning |\n|---|---|---|---|"
    return f"{'#' * level} {name}\n\n{about}\n\n{head}\n{rows}\n"


def type_of(node: dict[str, Any]) -> str:
    """A schema as words; an object is a link to its section."""
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    options = node.get("oneOf") or node.get("anyOf")
    if options:
        return " or ".join(type_of(option) for option in options)
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    if "enum" in node:
        return " or ".join(f"`{json.dumps(value)}`" for value in node["enum"])
    kind = str(node.get("type", "any"))
    if kind == "array":
        return f"list of {type_of(node.get('items', {}))}"
    values = next(
        iter(node.get("patternProperties", {}).values()), node.get("additionalProperties")
    )
    if kind == "object" and isinstance(values, dict):
        return f"map of name to {type_of(values)}"
    return kind + _range(node)


def _range(node: dict[str, Any]) -> str:
    words = {
        "minimum": ">=",
        "exclusiveMinimum": ">",
        "maximum": "<=",
        "exclusiveMaximum": "<",
    }
    limits = [f"{sign} {_number(node[key])}" for key, sign in words.items() if key in node]
    return f" ({', '.join(limits)})" if limits else ""


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{value:.12g}"


def _default(field: str, node: dict[str, Any], required: set[str]) -> str:
    if field in required:
        return "required"
    if "default" not in node:
        return "empty"
    if isinstance(node["default"], dict):
        return "its own defaults"
    return f"`{json.dumps(node['default'])}`"


def text_of(node: dict[str, Any]) -> str:
    """The description in one line, for a cell of a table."""
    return " ".join(str(node.get("description", "")).split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
