"""A task family without its code: facts of a bundle's task, for who plans a job and never judges.

Owns the facts: how they are read from a family, and how they stand in for one.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from troupe.errors import InvalidArgumentError
from troupe.spec.bundle import TaskFacts
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.tasks.family import SPLITS, Environment, Split, Task, TaskFamily


class AnyParams(BaseModel):
    """Parameters that only the code of the bundle can check."""

    model_config = ConfigDict(frozen=True, extra="allow")


class PlannedTaskset:
    """Sizes of splits; the tasks themselves are made by env services."""

    def __init__(self, sizes: Mapping[Split, int | None]) -> None:
        self._sizes = sizes

    def size(self, split: Split) -> int | None:
        """Number of tasks in the split, or None when it is infinite."""
        return self._sizes.get(split)

    def task(self, split: Split, index: int) -> Task:
        """Raise InvalidArgumentError."""
        raise _elsewhere(f"make task {split}/{index}")


class PlannedFamily:
    """A TaskFamily that can be planned with and judges nothing."""

    Params: ClassVar[type[BaseModel]] = AnyParams
    return_bound: ClassVar[float] = float("inf")

    def __init__(self, name: str, facts: TaskFacts) -> None:
        self.name = name
        self.agents = tuple(facts.agents)
        self.local_terms = {agent: facts.local_terms.get(agent, {}) for agent in facts.agents}
        self._sizes: Mapping[Split, int | None] = facts.sizes

    def taskset(self) -> PlannedTaskset:
        """Its tasks' numbers."""
        return PlannedTaskset(self._sizes)

    def environment(self) -> Environment:
        """Raise InvalidArgumentError."""
        raise _elsewhere("judge it")


def is_bundled(spec: JobSpec, name: str) -> bool:
    """Whether ``name`` (of a task or a reward function) names code of the job's bundle."""
    return spec.bundle is not None and ":" in name


def planned_family(spec: JobSpec) -> TaskFamily:
    """The task of ``spec``, whose code lies in its bundle; raises SpecInvalidError."""
    facts = spec.bundle.task if spec.bundle else None
    if facts is None:
        text = (
            f"the bundle's task '{spec.task.name}' comes without its facts (agents, terms, sizes), "
            "and only env services load its code; submit with `troupe submit --with`, or fill in "
            "what `troupe bundle` prints"
        )
        raise SpecInvalidError([Issue("/bundle/task", text)])
    family: Any = PlannedFamily(spec.task.name, facts)
    return family


def facts_of(family: TaskFamily) -> TaskFacts:
    """The facts of a family that is loaded."""
    taskset = family.taskset()
    return TaskFacts(
        agents=list(family.agents),
        local_terms={agent: dict(terms) for agent, terms in family.local_terms.items()},
        sizes={split: taskset.size(split) for split in SPLITS},
    )


def check_facts(family: TaskFamily, facts_json: str) -> None:
    """Raise InvalidArgumentError where a loaded family is not what its job was planned with."""
    try:
        planned = TaskFacts.model_validate_json(facts_json)
    except ValueError as error:
        raise InvalidArgumentError(
            f"the facts of a bundle's task can't be read: {error}"
        ) from error
    found = facts_of(family)
    sizes = {split: planned.sizes.get(split) for split in SPLITS}
    for name, expected, is_so in (
        ("agents", planned.agents, found.agents),
        ("terms", planned.local_terms, found.local_terms),
        ("sizes of splits", sizes, found.sizes),
    ):
        if expected != is_so:
            raise InvalidArgumentError(
                f"the {name} of task '{family.name}' are {is_so} here, and the job was planned with"
                f" {expected}; submit it again with `troupe submit --with`",
                pointer="/bundle/task",
            )


def _elsewhere(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"this process can't {what}: the task's code lies in the job's bundle, which env services "
        "alone load (docs/bundles.md)"
    )
