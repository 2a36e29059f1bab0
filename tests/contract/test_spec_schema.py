"""The JSON schema of a job spec says enough for editors: descriptions and closed objects."""

from typing import Any

from troupe.spec import JobSpec


def _objects() -> dict[str, dict[str, Any]]:
    schema = JobSpec.model_json_schema()
    return {"JobSpec": schema, **schema["$defs"]}


def test_schema_when_read_then_every_field_says_what_it_means() -> None:
    silent = [
        f"{name}.{field}"
        for name, schema in _objects().items()
        for field, node in schema.get("properties", {}).items()
        if not node.get("description")
    ]
    assert silent == []


def test_schema_when_read_then_unknown_fields_are_refused_everywhere() -> None:
    assert [n for n, s in _objects().items() if s.get("additionalProperties") is not False] == []
