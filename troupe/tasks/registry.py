"""Loads a task family with its parameters checked, and gives it what its environment needs."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.sandbox.sandbox import Sandbox
from troupe.spec.issues import Issue, SpecInvalidError, issues_of
from troupe.tasks.family import Environment, SandboxedTaskFamily, TaskFamily


def load_family(name: str, params: Mapping[str, Any], *, pointer: str = "/task") -> TaskFamily:
    """The family ``name`` with ``params``.

    Raises InvalidArgumentError for an unknown name, and SpecInvalidError whose pointers start at
    ``pointer`` for wrong parameters.
    """
    family: type[TaskFamily] = plugins.load(plugins.TASKS, name, pointer=f"{pointer}/name")
    try:
        checked = family.Params.model_validate(dict(params))
    except ValidationError as error:
        prefix = f"{pointer}/params"
        raise SpecInvalidError(
            [Issue(prefix + i.pointer, i.message) for i in issues_of(error, family.Params)],
            source=f"parameters of task '{name}'",
        ) from error
    return family(checked)


def make_environment(family: TaskFamily, sandbox: Sandbox | None) -> Environment:
    """The family's judge; a family that runs programs gets ``sandbox``.

    Raises InvalidArgumentError when it needs one and there is none.
    """
    if not isinstance(family, SandboxedTaskFamily):
        return family.environment()
    if sandbox is None:
        raise InvalidArgumentError(
            f"task '{family.name}' runs programs and needs a sandbox, but none is set up here; "
            "install the env service's package (pip install 'troupe[env]')",
            pointer="/task/name",
        )
    return family.environment_in(sandbox)
