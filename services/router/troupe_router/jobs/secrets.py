"""Keeps secrets out of specs: a spec is stored, logged, shown to readers and sent to trackers.

Trackers and stores take keys from the environment of the process that needs them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from troupe.spec import Issue, JobSpec

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LAST = re.compile(
    r"apikey|accesskey|privatekey|secretkey|secret|password|passwd|pwd|passphrase|credential|"
    r"authorization"
)
"""A name with this ending is a secret's: ``client_secret``, and not ``secret_santa``."""
_OF_KEY = re.compile(r"api|access|private|secret|signing|encryption|ssh|auth|master|shared")
_OF_TOKEN = re.compile(
    r"access|api|auth|bearer|bot|ci|deploy|gh|github|gitlab|hf|hub|huggingface|id|jwt|mlflow|"
    r"npm|oauth|openai|personal|pypi|refresh|registry|secret|service|session|slack|tracking|"
    r"user|wandb"
)
"""What stands before ``token`` in a secret's name; models have tokens of other names."""
_SHAPES = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}|(AKIA|ASIA)[0-9A-Z]{16}\b)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|^\s*(authorization\s*:\s*\S|bearer\s+\S+\s*$)",
    re.IGNORECASE,
)


def secret_issues(spec: JobSpec) -> list[Issue]:
    """An issue for each value of the spec that looks like a secret. Never quotes the value."""
    places: list[tuple[str, Any]] = [("/task/params", spec.task.params)]
    places += [
        (f"/trackers/{i}/options", tracker.options) for i, tracker in enumerate(spec.trackers)
    ]
    return [
        Issue(
            pointer,
            "looks like a secret, and a spec is stored and shown; leave it out and set it in the "
            "environment of the process that needs it (WANDB_API_KEY, MLFLOW_TRACKING_TOKEN, ...)",
        )
        for pointer, tree in places
        for pointer in _secret_pointers(pointer, tree)
    ]


def _secret_pointers(pointer: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            at = f"{pointer}/{name}"
            if _is_secret_name(name) and _holds_something(inner):
                yield at
            else:
                yield from _secret_pointers(at, inner)
    elif isinstance(value, str):
        if _SHAPES.search(value) or _is_url_with_secret(value):
            yield pointer
    elif isinstance(value, Sequence):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            yield from _secret_pointers(f"{pointer}/{index}", inner)


def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    last = words[-1] if _LAST.fullmatch(words[-1]) else words[-1].removesuffix("s")
    before = words[-2] if len(words) > 1 else ""
    if last == "token":
        # ``token`` alone is one; ``tokens`` alone are a model's.
        return bool(_OF_TOKEN.fullmatch(before)) or words == ["token"]
    return bool(_LAST.fullmatch(last)) or (last == "key" and bool(_OF_KEY.fullmatch(before)))


def _holds_something(value: Any) -> bool:
    """Whether there is a text or a number at ``value`` or below it."""
    if isinstance(value, Mapping):
        return any(map(_holds_something, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_something, cast("Sequence[Any]", value)))
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_url_with_secret(text: str) -> bool:
    """Whether ``text`` is a URL with a password, a token in a user's place, or one as parameter."""
    if "://" not in text:
        return False
    try:
        parts = urlsplit(text)
        parameters = parse_qsl(parts.query, max_num_fields=100)
    except ValueError:
        return False
    # The user of another scheme is a name: ssh://git@host.
    is_user_secret = bool(parts.username) and parts.scheme in ("http", "https")
    is_parameter_secret = any(_is_secret_name(name) and value for name, value in parameters)
    return bool(parts.password) or is_user_secret or is_parameter_secret
