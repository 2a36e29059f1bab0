"""Loads a task family with its parameters checked."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from troupe import plugins
from troupe.spec.issues import Issue, SpecInvalidError, issues_of
from troupe.tasks.contract import TaskFamily


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
