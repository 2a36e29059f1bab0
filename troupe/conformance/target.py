"""Resolves a command line's target: a registered task, ``module:attr``, a package or a spec.

Owns names and import folders. Never checks behaviour.
"""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe import plugins
from troupe.conformance.subject import Reference
from troupe.errors import InvalidArgumentError
from troupe.spec import load_spec
from troupe.tasks.family import TaskFamily
from troupe.tasks.registry import load_family

_NEEDED = ("name", "agents", "Params", "local_terms", "return_bound", "taskset")


def find_targets(target: str, params: Mapping[str, Any]) -> list[Reference]:
    """The families that ``target`` names: usually one, or every entry point of a package folder.

    Example: ``find_targets("plan_path", {"size": 6})``, ``find_targets("./my-task", {})``.

    Raises InvalidArgumentError when it names none.
    """
    if target in plugins.registered(plugins.TASKS):
        return [Reference(target, params)]
    path = Path(target.partition(":")[0])
    if path.is_dir():
        return _package(path, params)
    if path.suffix in (".yaml", ".yml", ".json"):
        task = load_spec(path).task
        return [Reference(task.name, {**task.params, **params})]
    if path.suffix == ".py":
        return [_file(target, path, params)]
    return [Reference(target, params)]


def load_target(reference: Reference) -> TaskFamily:
    """The family behind ``reference``; its import folders join ``sys.path``.

    Raises InvalidArgumentError when it cannot be loaded or is no task family.
    """
    for folder in reference.import_paths:
        if folder not in sys.path:
            sys.path.insert(0, folder)
    family_class = plugins.load(plugins.TASKS, reference.name)
    missing = [name for name in _NEEDED if not hasattr(family_class, name)]
    if missing:
        raise InvalidArgumentError(
            f"'{reference.name}' is not a task family: it has no {', '.join(missing)}; name the "
            "class that implements troupe.tasks.family.TaskFamily"
        )
    return load_family(reference.name, reference.params)


def _package(folder: Path, params: Mapping[str, Any]) -> list[Reference]:
    project = folder / "pyproject.toml"
    try:
        document = tomllib.loads(project.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InvalidArgumentError(
            f"{folder} has no pyproject.toml; give the folder that `troupe new task` made, or "
            "module:attr"
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgumentError(f"{project} cannot be read: {error}") from error
    entries = document.get("project", {}).get("entry-points", {}).get(plugins.TASKS, {})
    if not entries:
        raise InvalidArgumentError(
            f'{project} names no task; add [project.entry-points."{plugins.TASKS}"] with a line '
            'such as my_task = "my_task.family:MyTask"'
        )
    source = folder / "src" if (folder / "src").is_dir() else folder
    return [Reference(value, params, (str(source.resolve()),)) for value in entries.values()]


def _file(target: str, path: Path, params: Mapping[str, Any]) -> Reference:
    attribute = target.partition(":")[2]
    if not path.is_file() or not attribute:
        raise InvalidArgumentError(
            f"'{target}': give an existing file with the class in it, such as my_task.py:MyTask"
        )
    return Reference(plugins.absolute(target), params)
