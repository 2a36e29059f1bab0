"""Finds extensions by entry-point name or by ``module:attr``: one rule for every extension point.

Loads code that the spec names, so it runs only where the design says: in services and tools that
the operator started, never in a sandbox.
"""

import importlib
from importlib.metadata import entry_points
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.spec.issues import suggest

TASKS = "troupe.tasks"
ALGORITHMS = "troupe.algorithms"
WORKFLOWS = "troupe.workflows"
ENGINES = "troupe.engines"
SANDBOXES = "troupe.sandboxes"
TRACKERS = "troupe.trackers"


def registered(group: str) -> list[str]:
    """Names that installed packages offer for an extension point."""
    return sorted({entry.name for entry in entry_points(group=group)})


def load(group: str, name: str, *, pointer: str | None = None) -> Any:
    """The object behind ``name``; raises InvalidArgumentError that names the known ones."""
    if ":" in name:
        return _load_attribute(name, pointer)
    found = [entry for entry in entry_points(group=group) if entry.name == name]
    if not found:
        raise InvalidArgumentError(
            f"no {group.removeprefix('troupe.').removesuffix('s')} is called '{name}'; "
            f"{suggest(name, registered(group))} (or give 'module:attr')",
            pointer=pointer,
        )
    try:
        return found[0].load()
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(
            f"'{name}' ({found[0].value}) cannot be imported: {error}; "
            "reinstall the package that provides it, with its extras",
            pointer=pointer,
        ) from error


def _load_attribute(name: str, pointer: str | None) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgumentError(
            f"'{name}' cannot be imported: {error}; check the module path and the attribute",
            pointer=pointer,
        ) from error
