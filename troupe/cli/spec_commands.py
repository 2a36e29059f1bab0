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
from troupe.spec.fit import fit_batch
from troupe.spec.memory import GB

_ANY_GPU_GB = 1e6


def validate(
    spec: opt.SpecPath,
    overrides: opt.Overrides = None,
    gpu_gb: Annotated[
        float | None,
        typer.Option("--gpu-gb", min=1.0, help="Refuse a trainer that needs a larger GPU."),
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, help="GPUs that share the trainer's weights.")] = 1,
    as_json: opt.AsJson = False,
) -> None:
    """Check a spec and everything that it names; change nothing."""
    job_spec = _read(spec, overrides)
    load_parts(job_spec)
    _check(job_spec)
    memory = predicted(job_spec, gpu_gb, ranks)
    if as_json:
        print_json(job_spec.model_dump(mode="json"))
        return
    out().print(f"{spec} is valid: job '{job_spec.name}', {job_spec.steps} steps", markup=False)
    out().print(memory, markup=False)


def predicted(spec: JobSpec, gpu_gb: float | None, ranks: int) -> str:
    """A sentence on the trainer's memory; raises InvalidArgumentError when it exceeds the GPU."""
    fit = fit_batch(spec, int((gpu_gb or _ANY_GPU_GB) * GB), ranks=ranks)
    if fit.peak_bytes is None:
        return "trainer memory: unknown, for a model's shape is not at hand (no config.json)"
    batch = fit.batch
    how = "computed again" if batch.checkpoint_activations else "kept"
    which = f" on a GPU of {gpu_gb:g} GB" if gpu_gb else " on a GPU"
    return (
        f"trainer memory{which}: {fit.peak_bytes / GB:.1f} GB predicted, with micro-batches of "
        f"{batch.tokens_per_row * batch.rows_per_microbatch} tokens and activations {how}"
    )


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
