"""The job specification."""

from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.spec.load import load_spec, parse_spec, plain_yaml, read_file, read_yaml

__all__ = [
    "Issue",
    "JobSpec",
    "SpecInvalidError",
    "load_spec",
    "parse_spec",
    "plain_yaml",
    "read_file",
    "read_yaml",
]
