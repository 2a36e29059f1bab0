"""A job's spec without what belongs to the machine: paths, sockets, trackers."""

import re
from typing import Any

from troupe.spec import JobSpec

_FOLDERS = re.compile(r"(?:(?<![^=,])|(?=file://))(?:file://)?~?/(?:[^/,=\n]+/)+(?=[^/,=\s])")
"""The folders of an absolute path of two parts or more, where a value may hold one: at its start,
after ``=`` or ``,`` (``--data=/home/me/rows``, ``scout=PATH,walker=PATH``) and in a ``file://``.

A word with one slash, such as the command ``/start``, is none, and a sentence keeps its paths.
"""


def scrubbed(spec: JobSpec) -> dict[str, Any]:
    """The spec as JSON values; of a path of this machine only the last part is left."""
    document: dict[str, Any] = spec.model_dump(mode="json", exclude={"trackers"})
    document["task"]["params"].pop("socket", None)
    return without_paths(document)


def without_paths(value: Any) -> Any:
    """A JSON value in which each path of this machine is cut to its last part."""
    if isinstance(value, dict):
        return {key: without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    return _FOLDERS.sub("", value) if isinstance(value, str) and "\n" not in value else value
