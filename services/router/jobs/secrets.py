"""Keeps secrets out of specs: a spec is stored, logged, shown to readers and sent to trackers.

Trackers and stores take keys from the environment of the process that needs them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from troupe.spec import Issue, JobSpec

_SECRET_NAME = re.compile(
    r"(^|[_-])(api_?key|access_?key|private_?key|secret|password|passwd|passphrase|credentials?"
    r"|(access|auth|bearer|api|refresh|id|personal)_?token)s?$|^token$|^authorization$",
    re.IGNORECASE,
)


def secret_issues(spec: JobSpec) -> list[Issue]:
    """An issue for each value of the spec that looks like a secret. Never quotes the value."""
    places: list[tuple[str, Any]] = [("/task/params", spec.task.params)]
    places += [(f"/trackers/{i}/options", each.options) for i, each in enumerate(spec.trackers)]
    return [
        Issue(
            pointer,
            "looks like a secret, and a spec is stored and shown; leave it out and set it in the "
            "environment of the process that needs it (WANDB_API_KEY, MLFLOW_TRACKING_TOKEN, ...)",
        )
        for pointer, tree in places
        for pointer in _found(pointer, tree)
    ]


def _found(pointer: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            at = f"{pointer}/{name}"
            if _SECRET_NAME.search(name) and isinstance(inner, str) and inner:
                yield at
            else:
                yield from _found(at, inner)
    elif isinstance(value, str):
        if _has_password(value):
            yield pointer
    elif isinstance(value, Sequence):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            yield from _found(f"{pointer}/{index}", inner)


def _has_password(text: str) -> bool:
    """Whether ``text`` is a URL with a password in it."""
    if "://" not in text or "@" not in text:
        return False
    try:
        return bool(urlsplit(text).password)
    except ValueError:
        return False
