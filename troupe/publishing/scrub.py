"""A job's spec without what belongs to the machine: paths, sockets, trackers."""

from pathlib import Path
from typing import Any

from troupe.spec import JobSpec


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
    return _last_part(value) if isinstance(value, str) and _is_path(value) else value


def _is_path(text: str) -> bool:
    """An absolute path of two parts or more, or such a path with an attribute (``file.py:attr``).

    A word with one slash, such as the command ``/start``, is none.
    """
    is_absolute = text.startswith(("/", "~/")) and text.count("/") > 1
    return is_absolute and "\n" not in text and Path(text.partition(":")[0]).name != ""


def _last_part(text: str) -> str:
    path, colon, attr = text.partition(":")
    return Path(path).name + colon + attr
