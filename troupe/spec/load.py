"""Reads a JobSpec from a mapping, a JSON text or a YAML file; every fault becomes an Issue."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from troupe.spec.issues import Issue, SpecInvalidError, issues_of
from troupe.spec.job import JobSpec


def parse_spec(document: Any, *, source: str = "job spec") -> JobSpec:
    """The spec in ``document``; raises SpecInvalidError with all that is wrong."""
    if not isinstance(document, Mapping):
        raise SpecInvalidError([Issue("", "must be a mapping of fields")], source=source)
    try:
        return JobSpec.model_validate(document)
    except ValidationError as error:
        raise SpecInvalidError(issues_of(error, JobSpec), source=source) from error


def load_spec(path: Path) -> JobSpec:
    """The spec in a YAML or JSON file; raises SpecInvalidError."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecInvalidError(
            [Issue("", f"cannot read the file: {error.strerror}; check the path")], source=str(path)
        ) from error
    except yaml.YAMLError as error:
        raise SpecInvalidError([Issue("", f"not valid YAML: {error}")], source=str(path)) from error
    return parse_spec(document, source=str(path))
