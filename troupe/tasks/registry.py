"""Loads a task family, checks its parameters, and makes its environment."""

from collections.abc import Mapping
from typing import Any

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import Environment, SandboxedTaskFamily, TaskFamily, needs_sandbox


def load_family(name: str, params: Mapping[str, Any], *, pointer: str = "/task") -> TaskFamily:
    """The family ``name`` with ``params``.

    Raises InvalidArgumentError for an unknown name and for a class whose constructor raises or
    whose bound is no number, and SpecInvalidError whose pointers start at ``pointer`` for wrong
    parameters.
    """
    family: type[TaskFamily] = plugins.load(plugins.TASKS, name, pointer=f"{pointer}/name")
    label = f"task '{name}'"
    checked = plugins.checked_params(family, params, label=label, pointer=f"{pointer}/params")
    assert checked is not None  # plugins.load refuses a family without Params
    made: TaskFamily = plugins.constructed(family, checked, label=label, pointer=f"{pointer}/name")
    bound: object = getattr(made, "return_bound", 0.0)
    if not hasattr(bound, "__float__"):
        raise InvalidArgumentError(
            f"{label} has return_bound = {bound!r}, which is no number; give the largest team "
            "reward of one episode",
            pointer=f"{pointer}/name",
        )
    return made


def make_environment(family: TaskFamily, sandbox: Sandbox | None) -> Environment:
    """The family's environment; a family that runs programs gets ``sandbox``.

    Raises InvalidArgumentError when it needs one and there is none.
    """
    if not needs_sandbox(family) or not isinstance(family, SandboxedTaskFamily):
        return family.environment()
    if sandbox is None:
        raise InvalidArgumentError(
            f"task '{family.name}' runs programs and needs a sandbox, but none is set up here; "
            "install the env service's package (pip install 'troupe[env]')",
            pointer="/task/name",
        )
    return family.environment_in(sandbox)
