"""A job's spec without what belongs to the machine: paths, sockets, trackers."""

from pathlib import Path
from typing import Any

from troupe.spec import JobSpec


def scrubbed(spec: JobSpec) -> dict[str, Any]:
    """The spec as JSON values; of a path of this machine only the last part is left."""
    document: dict[str, Any] = spec.model_dump(mode="json", exclude={"trackers"})
    document["task"]["params"].pop("socket", None)
    cut: dict[str, Any] = _without_paths(document)
    return cut


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
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
