"""``troupe eval --team``: what a published team sets, where no flag says otherwise."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.evaluation.teams import Team
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.team_folder import PUBLISHED_CODE, TeamFolder

if TYPE_CHECKING:
    from troupe.cli.eval_run import EvalFlags


def flags_of_team(flags: "EvalFlags", team: TeamFolder) -> "EvalFlags":
    """``flags``, completed by the team's task, workflow, seed and number format.

    Raises InvalidArgumentError for a team of ``troupe.train``, whose reward is not at hand.
    """
    task, workflow = team.task, team.workflow
    if task is None:
        raise InvalidArgumentError(
            f"team '{team.manifest.name}' learned from rows and a reward function of a Python "
            "program, which are not in it; evaluate it there, with held_out= of troupe.train"
        )
    dtypes = {policy.dtype for policy in team.manifest.policies.values()}
    usual: dict[str, Any] = {
        "task": task.name,
        "params": json.dumps(task.params),
        "order": ",".join(workflow.order),
        "workflow": workflow.kind,
        "max_turns": workflow.max_turns,
        "seed": team.manifest.spec.get("seed", 0),
        "dtype": dtypes.pop() if len(dtypes) == 1 else "float32",
    }
    missing = {name: value for name, value in usual.items() if getattr(flags, name) is None}
    return replace(flags, **missing)


@contextmanager
def only_known_code(flags: "EvalFlags", team: TeamFolder) -> Generator[None]:
    """In the block, a published manifest loads registered names alone; flags may name code.

    Raises InvalidArgumentError where the manifest names code: whoever wrote it would choose what
    runs here.
    """
    if not team.is_published:
        if team.manifest.spec.get("bundle") and not flags.task:
            raise InvalidArgumentError(
                f"the task of {team.manifest.name} came with its job as a bundle; `troupe eval "
                f"{flags.team}` evaluates with that code, and --task FILE:CLASS with yours"
            )
        yield
        return
    kind = team.manifest.workflow.kind
    if ":" in kind and not flags.workflow:
        raise InvalidArgumentError(
            f"the team's workflow '{kind}' is code, which no team brings along; look at it, and "
            f"give it yourself: --workflow {kind}"
        )
    task = team.manifest.task
    if task is not None and ":" in task.name and not flags.task:
        raise InvalidArgumentError(
            f"the team's task '{task.name}' is code, which no team brings along; look at it, and "
            f"give it yourself: --task {task.name}"
        )
    with plugins.only_modules(None if flags.task else (), PUBLISHED_CODE):
        yield


def sampling_of_team(manifest: TeamManifest) -> dict[str, Any]:
    """The sampling that all agents have in common; raises InvalidArgumentError where they differ.

    An evaluation has one sampling for all seats.
    """
    samplings = {agent.sampling.model_dump_json() for agent in manifest.agents.values()}
    if len(samplings) > 1:
        raise InvalidArgumentError(
            f"the agents of team '{manifest.name}' sample in different ways, and an evaluation "
            "has one way for all; evaluate with --task, --policy and --temperature instead"
        )
    sampling: dict[str, Any] = json.loads(samplings.pop())
    return sampling


def seats_of_team(label: str, team: TeamFolder) -> Team:
    """The team's own weights on its seats."""
    seats = {agent: team.ref(seat.policy) for agent, seat in team.manifest.agents.items()}
    return Team(label, seats)
