"""Writes docs/rest-paths.md from the router's OpenAPI document: ``gen_rest_docs.py OUT``."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gen_job_spec_docs import reachable, section, text_of, type_of

from troupe.spec import JobSpec
from troupe_router.rest.access.api_keys import KeyStore
from troupe_router.rest.access.rate_limits import WrongKeys
from troupe_router.rest.app import create_app
from troupe_router.settings import RouterSettings

HEADER = """\
# REST paths

Generated from the router's OpenAPI document (`GET /openapi.json`) by `make generate`; do not edit.
How to use them, keys and limits: [rest.md](rest.md). Each path may also answer with a problem
(`application/problem+json`, [ProblemDocument](#problemdocument)).
"""
METHODS = ("get", "post", "put", "patch", "delete")
SPEC_OBJECTS = {"JobSpec", *JobSpec.model_json_schema().get("$defs", {})}
"""Objects that docs/job-spec.md describes."""


def main() -> None:
    """Write the page to the path in the first argument."""
    # The routes are only described, so what they would work with is not there.
    parts: Any = SimpleNamespace(
        settings=RouterSettings(), disk=None, keys=KeyStore(None), wrong_keys=WrongKeys()
    )
    document = create_app(parts).openapi()
    schemas: dict[str, Any] = document["components"]["schemas"]
    operations = [
        _operation(method, path, item[method])
        for path, item in sorted(document["paths"].items())
        for method in METHODS
        if method in item
    ]
    names = reachable({"properties": document["paths"]}, schemas)
    models = [section(n, schemas[n], level=3) for n in sorted({*names} - SPEC_OBJECTS)]
    text = "\n".join([HEADER, *operations, "## Models\n", *models])
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    summary = operation["summary"].rstrip(".")
    words = dict.fromkeys([f"{summary}.", text_of(operation)])
    lines = [f"## `{method.upper()} {path}`\n", " ".join(words).strip(), ""]
    parameters = operation.get("parameters", [])
    if parameters:
        lines += ["| parameter | in | type | default | meaning |", "|---|---|---|---|---|"]
        lines += [_parameter(parameter) for parameter in parameters]
        lines.append("")
    body = operation.get("requestBody", {}).get("content", {})
    lines += [f"Body: {_contents(body)}.\n"] if body else []
    answers = [
        f"{status}: {_contents(response.get('content', {})) or response['description']}"
        for status, response in operation["responses"].items()
        if status.startswith(("2", "3"))
    ]
    return "\n".join([*lines, f"Answer {'; '.join(answers)}.\n"])


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    default = "required" if parameter.get("required") else f"`{json.dumps(schema.get('default'))}`"
    name, kind = parameter["name"], _linked(type_of(schema))
    return f"| `{name}` | {parameter['in']} | {kind} | {default} | {text_of(parameter)} |"


def _contents(content: dict[str, Any]) -> str:
    kinds = {kind: _linked(type_of(media.get("schema", {}))) for kind, media in content.items()}
    return " or ".join(f"`{kind}` ({name})" for kind, name in kinds.items())


def _linked(kind: str) -> str:
    for name in SPEC_OBJECTS:
        kind = kind.replace(f"(#{name.lower()})", f"(job-spec.md#{name.lower()})")
    return kind


if __name__ == "__main__":
    main()
