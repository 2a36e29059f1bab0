"""The default workflow of a task family.

Evaluation, ``troupe init``, dry runs of a family and the conformance kit share it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from troupe.errors import InvalidArgumentError
from troupe.spec.issues import SpecInvalidError, issues_of, suggest
from troupe.spec.job import WorkflowSpec
from troupe.tasks.family import TaskFamily

USUAL_TURNS: int = WorkflowSpec.model_fields["max_turns"].default
"""For a family that sets no limit of turns: the default of a job spec."""


def usual_workflow(
    family: TaskFamily,
    *,
    kind: str | None = None,
    order: Sequence[str] | None = None,
    max_turns: int | None = None,
) -> WorkflowSpec:
    """The family's own ``usual_workflow``, else all its agents in turn; arguments override it.

    Raises InvalidArgumentError when ``order`` names an agent that the family does not have, or the
    workflow is none.
    """
    defaults: Mapping[str, Any] = getattr(family, "usual_workflow", {})
    usual: dict[str, Any] = {"order": list(family.agents), "max_turns": USUAL_TURNS, **defaults}
    overrides = {"kind": kind, "order": list(order) if order else None, "max_turns": max_turns}
    usual |= {name: value for name, value in overrides.items() if value is not None}
    for agent in usual["order"]:
        if agent not in family.agents:
            raise InvalidArgumentError(
                f"task '{family.name}' has no agent '{agent}'; {suggest(agent, family.agents)}",
                pointer="/workflow/order",
            )
    try:
        return WorkflowSpec.model_validate(usual)
    except ValidationError as error:
        issues = issues_of(error, WorkflowSpec)
        raise SpecInvalidError(issues, source=f"workflow of task '{family.name}'") from error
