"""Reads job specs for commands: the file, ``--set`` overrides and local model folders.

Owns what a command changes in a spec before the router gets it. Never checks what the spec means.
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from troupe import plugins
from troupe.cli.model_fetch import MODELS
from troupe.data.demonstrations import POINTER as DEMONSTRATIONS
from troupe.data.demonstrations import demonstrations_in
from troupe.data.sources import digest_of
from troupe.errors import InvalidArgumentError
from troupe.spec import (
    Issue,
    JobSpec,
    SpecInvalidError,
    load_spec,
    parse_spec,
    plain_yaml,
    read_file,
)
from troupe.spec.algorithm import DemonstrationsSpec


def read_spec(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """The spec in ``path`` with ``key=value`` overrides; raises SpecInvalidError."""
    if not overrides:
        return load_spec(path)
    document = with_overrides(_document(path), overrides)
    return parse_spec(document, source=f"{path} with {', '.join(overrides)}")


def with_overrides(document: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """``document``, changed by each ``key=value``; raises InvalidArgumentError."""
    for override in overrides:
        _set(document, override)
    return document


def unused_policies(path: Path, spec: JobSpec) -> list[str]:
    """Policies in ``path`` that no agent of ``spec`` (parsed from it) samples from."""
    named: dict[str, Any] = _document(path).get("policies") or {}
    return sorted(name for name in named if name not in spec.policies)


def with_local_paths(spec: JobSpec) -> JobSpec:
    """``spec`` with absolute paths of model folders and of ``file.py:attr``.

    The files of a bundle are named within it, and stay so.

    Raises:
        SpecInvalidError: a model names a folder that does not exist; says how to make one.
    """
    if issues := missing_models(spec):
        raise SpecInvalidError(issues)
    shown, shown_issues = _with_digest(spec)
    if shown_issues:
        raise SpecInvalidError(shown_issues)
    spec = spec.model_copy(
        update={"algorithm": spec.algorithm.model_copy(update={"demonstrations": shown})}
    )
    policies = {
        name: policy.model_copy(
            update={field: _absolute(model) for field, model in policy.models().items()}
        )
        for name, policy in spec.policies.items()
    }
    parts = {
        "task": ("name", spec.task),
        "workflow": ("kind", spec.workflow),
        "algorithm": ("kind", spec.algorithm),
        "reward": ("kind", spec.reward),
    }
    code = {
        part: model.model_copy(update={field: plugins.absolute(getattr(model, field))})
        for part, (field, model) in parts.items()
        if spec.bundle is None
    }
    return spec.model_copy(update={"policies": policies, **code})


def _with_digest(spec: JobSpec) -> tuple[DemonstrationsSpec | None, list[Issue]]:
    """The demonstrations by the file's absolute path and digest; a given digest stays."""
    given = spec.algorithm.demonstrations
    if given is None or not spec.steps:
        return given, []
    if issues := missing_demonstrations(spec) or faults_of_demonstrations(spec):
        return None, issues
    path = Path(given.path).expanduser()
    digest = given.sha256 or digest_of(path)
    return given.model_copy(update={"path": str(path.resolve()), "sha256": digest}), []


def missing_demonstrations(spec: JobSpec) -> list[Issue]:
    """An issue where the file of demonstrations is not there."""
    given = spec.algorithm.demonstrations
    if given is None or not spec.steps or Path(given.path).expanduser().is_file():
        return []
    why = f"there is no file '{given.path}'; give one of rows (docs/algorithms.md)"
    return [Issue(f"{DEMONSTRATIONS}/path", why)]


def faults_of_demonstrations(spec: JobSpec) -> list[Issue]:
    """What the trainer would refuse of the file of demonstrations, where it is there."""
    if spec.algorithm.demonstrations is None or not spec.steps or missing_demonstrations(spec):
        return []
    try:
        demonstrations_in(spec)
    except InvalidArgumentError as error:
        return [Issue(f"{DEMONSTRATIONS}/path", error.message)]
    return []


def missing_models(spec: JobSpec) -> list[Issue]:
    """Models of ``spec`` that name a folder which is not there, and how to make each."""
    return [
        Issue(f"/policies/{name}/{field}", _missing(spec, model))
        for name, policy in spec.policies.items()
        for field, model in policy.models().items()
        if is_missing_folder(model)
    ]


def is_missing_folder(model: str) -> bool:
    """True when ``model`` reads as a path on this machine (not a hub id) and does not exist."""
    path = Path(model).expanduser()
    if (path / "config.json").is_file():
        return False
    looks_local = model.startswith((".", "/", "~")) or model.count("/") > 1
    return looks_local or path.exists() or path.parts[0] in ("models", "runs")


def tiny_model_args(spec: JobSpec, model: str) -> list[str]:
    """Arguments of ``troupe model tiny`` that make ``model`` for the task of ``spec``."""
    args = ["--task", spec.task.name]
    if "size" in spec.task.params:
        args += ["--size", str(spec.task.params["size"])]
    params = {name: value for name, value in spec.task.params.items() if name != "size"}
    if params:
        args += ["--params", json.dumps(params, sort_keys=True)]
    return [*args, "--seed", str(spec.seed), "--out", model]


def _missing(spec: JobSpec, model: str) -> str:
    name = Path(model).name
    words = ["fetch", name] if name in MODELS else ["tiny", *tiny_model_args(spec, model)]
    command = shlex.join(["troupe", "model", *words, *(["--to", model] if name in MODELS else [])])
    return (
        f"there is no model folder '{model}' (no {Path(model) / 'config.json'}); make a small one "
        f"with `{command}`, or give a folder that save_pretrained wrote, or a hub id"
    )


def _absolute(model: str) -> str:
    path = Path(model).expanduser()
    return str(path.resolve()) if (path / "config.json").is_file() else model


def _document(path: Path) -> dict[str, Any]:
    document = read_file(path)
    if not isinstance(document, dict):
        raise SpecInvalidError([Issue("", "must be a mapping of fields")], source=str(path))
    return document


def _set(document: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InvalidArgumentError(
            f"--set {override!r} is not key=value; give for example --set steps=20 or "
            "--set policies.shared.optimizer.learning_rate=1e-4"
        )
    try:
        value = plain_yaml(text)
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgumentError(f"--set {key}: the value is not YAML: {error}") from error
    set_field(document, key, value, label=f"--set {override!r}")


def set_field(document: dict[str, Any], key: str, value: object, *, label: str) -> None:
    """Put ``value`` at ``key``, a path such as ``limits.env_timeout_s`` or ``trackers.0.kind``.

    Raises InvalidArgumentError, which begins with ``label``, for a path that cannot be.
    """
    *path, last = key.split(".")
    node: Any = document
    for part in path:
        node = _child(node, part, label)
    if isinstance(node, list):
        node[_position(node, last, label)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise _not_inside(label, last)


def _child(node: Any, part: str, label: str) -> Any:
    if isinstance(node, list):
        return node[_position(node, part, label)]
    if not isinstance(node, dict):
        raise _not_inside(label, part)
    if node.get(part) is None:
        node[part] = {}
    return node[part]


def _position(node: list[Any], part: str, label: str) -> int:
    if not part.isdigit() or int(part) >= len(node):
        raise InvalidArgumentError(
            f"{label}: '{part}' is not an index of a list of {len(node)}; give 0 to {len(node) - 1}"
        )
    return int(part)


def _not_inside(label: str, part: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{label}: a plain value has no field '{part}'; check the key")
