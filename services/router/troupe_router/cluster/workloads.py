"""Groups components into workloads, one cluster object each. Pure.

A component's name ends in its ordinal: components that differ in nothing else are one workload,
which one object with that many replicas runs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from troupe.errors import InvalidArgumentError
from troupe.runtime.launch.launcher import Component

ORDINAL = "TROUPE_ORDINAL"
"""Variable of a replica that holds its ordinal; Kubernetes puts it into other variables."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicas 0 .. count - 1 of one component. ``env`` may refer to ``$(TROUPE_ORDINAL)``."""

    name: str
    service: str
    components: tuple[str, ...]
    env: Mapping[str, str]
    args: tuple[str, ...]
    restarts: bool
    traits: Mapping[str, str]

    @property
    def count(self) -> int:
        """Number of replicas."""
        return len(self.components)


def group(components: Sequence[Component]) -> list[Workload]:
    """The workloads of ``components``; raises InvalidArgumentError when names do not fit."""
    members: defaultdict[str, list[Component]] = defaultdict(list)
    for component in components:
        stem, dash, ordinal = component.name.rpartition("-")
        if not (stem and dash and ordinal.isdecimal()):
            raise InvalidArgumentError(
                f"component '{component.name}' has no ordinal, so no replica of a workload can "
                "run it; end its name in -0, -1, ..."
            )
        members[stem].append(component)
    return [_workload(stem, replicas) for stem, replicas in members.items()]


def _workload(stem: str, members: list[Component]) -> Workload:
    members = sorted(members, key=_ordinal)
    if [_ordinal(c) for c in members] != list(range(len(members))):
        names = ", ".join(c.name for c in members)
        raise InvalidArgumentError(
            f"the ordinals of {names} are not 0 to {len(members) - 1}; name replicas in a row"
        )
    shapes = [_shape(stem, component) for component in members]
    if any(shape != shapes[0] for shape in shapes):
        raise InvalidArgumentError(
            f"the replicas of '{stem}' differ in more than their ordinal, so no one object can "
            "run them"
        )
    first = members[0]
    if first.argv:
        raise InvalidArgumentError(
            f"component '{first.name}' does not run a Python module, as containers must"
        )
    env, args, restarts = shapes[0]
    return Workload(
        name=stem,
        service=first.module.removeprefix("troupe_"),
        components=tuple(component.name for component in members),
        env=dict(env),
        args=args,
        restarts=restarts,
        traits=dict(first.traits),
    )


def _shape(
    stem: str, component: Component
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...], bool]:
    """What all replicas share: a value that ends in the component's name refers to the ordinal."""
    variables: list[tuple[str, str]] = []
    for name, value in sorted(component.env.items()):
        plain = value.replace("$(", "$$(")
        if value.endswith(component.name):
            plain = plain.removesuffix(component.name) + f"{stem}-$({ORDINAL})"
        variables.append((name, plain))
    return tuple(variables), tuple(component.args), component.restarts


def _ordinal(component: Component) -> int:
    return int(component.name.rpartition("-")[2])
