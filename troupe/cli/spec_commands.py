"""``troupe validate``, ``schema`` and ``dryrun``: they need no services."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from troupe import plugins
from troupe.cli import options as opt
from troupe.cli.output import err, out, print_json
from troupe.cli.specs import read_spec, unused_policies, with_overrides
from troupe.cli.starter import starter_spec
from troupe.conformance.target import find_targets, load_target
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import DryEpisode, dry_run
from troupe.runtime.tracking.options import tracker_issues
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe.spec.context import context_issues


def validate(
    spec: opt.SpecPath, overrides: opt.Overrides = None, as_json: opt.AsJson = False
) -> None:
    """Check a spec and everything that it names; change nothing."""
    job_spec = _read(spec, overrides)
    load_parts(job_spec)
    _check(job_spec)
    if as_json:
        print_json(job_spec.model_dump(mode="json"))
    else:
        out().print(f"{spec} is valid: job '{job_spec.name}', {job_spec.steps} steps", markup=False)


def schema(as_json: opt.AsJson = False) -> None:
    """Print the JSON schema of a job spec."""
    del as_json  # a schema is JSON either way
    print_json(JobSpec.model_json_schema())


def dryrun(
    spec: Annotated[
        Path,
        typer.Argument(
            help="Job spec; or a task alone: registered name, module:attr, file.py:attr.",
            metavar="SPEC",
        ),
    ],
    num_tasks: Annotated[int, typer.Option(min=1, max=1000, help="Tasks to play.")] = 2,
    overrides: opt.Overrides = None,
    as_json: opt.AsJson = False,
) -> None:
    """Play a few tasks with a scripted policy, down to groups and advantages; no services."""
    job_spec = _task_alone(str(spec), overrides) if names_a_task(spec) else _read(spec, overrides)
    _check(job_spec)
    episodes = asyncio.run(dry_run(job_spec, num_tasks=num_tasks))
    if as_json:
        print_json([_document(episode) for episode in episodes])
        return
    console = out()
    for episode in episodes:
        record = episode.played.episode
        console.print(
            f"{record.task_id}: {'solved' if record.is_success else 'not solved'} in "
            f"{record.num_turns} turns, team return {record.team_return:.3f}",
            markup=False,
        )
        console.print(_table(episode))


def names_a_task(target: Path) -> bool:
    """True when ``target`` is not a file and reads as the name of a task family."""
    text = str(target)
    return not target.exists() and (":" in text or text in plugins.registered(plugins.TASKS))


def _task_alone(target: str, overrides: opt.Overrides) -> JobSpec:
    """A spec that plays the task family ``target`` in its usual way; a dry run loads no model."""
    [reference] = find_targets(target, {})
    load_target(reference)  # its folder joins the import path
    document = starter_spec(reference.name, name="dryrun", is_small=True)
    return parse_spec(with_overrides(document, overrides or ()), source=target)


def _check(spec: JobSpec) -> None:
    """Raise SpecInvalidError for trackers and token limits that a router would refuse."""
    if issues := [*tracker_issues(spec), *context_issues(spec)]:
        raise SpecInvalidError(issues)


def _read(path: Path, overrides: opt.Overrides) -> JobSpec:
    spec = read_spec(path, overrides or ())
    for name in unused_policies(path, spec):
        err().print(
            f"warning: /policies/{name}: no agent samples from this policy, so it is neither "
            "loaded nor trained; map an agent to it, or remove it",
            markup=False,
        )
    return spec


def _table(episode: DryEpisode) -> Table:
    table = Table("turn", "agent", "policy", "prompt", "rewards", "advantages", "chosen", box=None)
    for group, advantages in zip(episode.played.groups, episode.advantages, strict=True):
        chosen = [str(c.index) for c in group.candidates if c.is_chosen]
        table.add_row(
            str(group.turn),
            group.agent,
            group.policy,
            ", ".join(p.digest[:8] for p in group.prompts),
            " ".join(f"{c.reward:.2f}" for c in group.candidates),
            " ".join(f"{a:+.2f}" for a in advantages),
            ",".join(chosen),
        )
    return table


def _document(episode: DryEpisode) -> dict[str, Any]:
    record = episode.played.episode
    groups = [
        {
            "group_id": group.group_id,
            "agent": group.agent,
            "turn": group.turn,
            "policy": group.policy,
            "prompts": [prompt.digest for prompt in group.prompts],
            "candidates": [
                {
                    "text": c.text,
                    "reward": c.reward,
                    "team_reward": c.team_reward,
                    "local_rewards": dict(c.local_rewards),
                    "advantage": advantage,
                    "is_chosen": c.is_chosen,
                    "info": json.loads(c.info_json or "{}"),
                }
                for c, advantage in zip(group.candidates, advantages, strict=True)
            ],
        }
        for group, advantages in zip(episode.played.groups, episode.advantages, strict=True)
    ]
    return {
        "task_id": record.task_id,
        "is_success": record.is_success,
        "num_turns": record.num_turns,
        "team_return": record.team_return,
        "groups": groups,
    }
