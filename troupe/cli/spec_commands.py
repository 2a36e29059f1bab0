"""``troupe validate``, ``schema`` and ``dryrun``: they need no services."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from troupe import plugins
from troupe.cli import options as opt
from troupe.cli.bundles import Requirements, With, bundled, upload
from troupe.cli.hanging import telling_where
from troupe.cli.output import err, note, out, print_json
from troupe.cli.spec_warnings import few_turns, spec_warnings
from troupe.cli.specs import faults_of_demonstrations, read_spec, unused_policies, with_overrides
from troupe.cli.starter import starter_spec
from troupe.clients.rest.models.dry_runs import DryRunDocument
from troupe.conformance.target import find_targets, load_target
from troupe.durable import replace_file
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import PAY_ITS_ANSWERS, dry_run, episode_document, untaught
from troupe.errors import InvalidArgumentError
from troupe.runtime.tracking.options import tracker_issues
from troupe.spec import JobSpec, SpecInvalidError, parse_spec
from troupe.spec.architecture import architecture_issues
from troupe.spec.checks import submission_issues
from troupe.spec.context import context_issues
from troupe.spec.dtypes import with_dtypes
from troupe.spec.fit import fit_batch
from troupe.spec.issues import suggest
from troupe.spec.memory import GB
from troupe.spec.sizes import first_rank_bytes, rank_host_bytes
from troupe.spec.transports import transport_words
from troupe.spec.vision import vision_issues

_ANY_GPU_GB = 1e6


def validate(
    spec: opt.SpecPath,
    overrides: opt.Overrides = None,
    gpu_gb: Annotated[
        float | None,
        typer.Option("--gpu-gb", min=1.0, help="Refuse a trainer that needs a larger GPU."),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1, help="GPUs that share the trainer's weights [default: the spec's trainer.gpus]."
        ),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Check a spec and everything that it names; change nothing."""
    job_spec = _read(spec, overrides)
    parts = load_parts(job_spec)
    _check(job_spec)
    for warning in spec_warnings(parts):
        note(f"warning: {warning}")
    memory = predicted(job_spec, gpu_gb, ranks or job_spec.trainer.gpus or 1)
    if as_json:
        print_json(job_spec.model_dump(mode="json"))
        return
    out().print(f"{spec} is valid: job '{job_spec.name}', {job_spec.steps} steps")
    out().print(memory)
    out().print(transport_words(with_dtypes(job_spec)))


def predicted(spec: JobSpec, gpu_gb: float | None, ranks: int) -> str:
    """A sentence on the trainer's memory; raises InvalidArgumentError when it exceeds the GPU."""
    spec = with_dtypes(spec)
    fit = fit_batch(spec, int((gpu_gb or _ANY_GPU_GB) * GB), ranks=ranks)
    if fit.peak_bytes is None:
        return "trainer memory: unknown, for a model's shape is not at hand (no config.json)"
    batch = fit.batch
    how = "computed again" if batch.checkpoint_activations else "kept"
    which = f" on a GPU of {gpu_gb:g} GB" if gpu_gb else " on a GPU"
    return (
        f"trainer memory{which}: {fit.peak_bytes / GB:.1f} GB predicted, with micro-batches of "
        f"{batch.budget} tokens and activations {how}"
        + (
            _on_dtype(spec)
            if gpu_gb
            else "; on a GPU of a given size (--gpu-gb 24) they are made to fit"
        )
        + _on_host(spec, ranks)
    )


def _on_dtype(spec: JobSpec) -> str:
    """What to set for policies that the spec keeps in float32."""
    names = [name for name, policy in spec.policies.items() if policy.dtype == "float32"]
    if not names:
        return ""
    return (
        f"; {', '.join(names)} in float32: on a GPU `dtype: bfloat16` takes half the memory and a "
        "fraction of the time"
    )


def _on_host(spec: JobSpec, ranks: int) -> str:
    """What each of several ranks needs beside its GPU."""
    needed = rank_host_bytes(spec, ranks) if ranks > 1 else None
    if needed is None:
        return ""
    first = first_rank_bytes(spec) / GB
    return (
        f"; {needed / GB:.1f} GB of host memory for each of {ranks} ranks, and {first:.1f} GB more "
        "for the first, which publishes and exports"
    )


def schema(as_json: opt.AsJson = False) -> None:
    """Print the JSON schema of a job spec."""
    del as_json  # a schema is JSON either way
    print_json(JobSpec.model_json_schema())


def dryrun(
    spec: Annotated[
        Path,
        typer.Argument(
            help="Job spec; or a task alone: registered name, module:attr, file.py:attr "
            "(with --on: its file goes --with it).",
            metavar="SPEC",
        ),
    ],
    num_tasks: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Tasks to play [2; 3 with --on].")
    ] = None,
    overrides: opt.Overrides = None,
    router: Annotated[
        str | None,
        typer.Option("--on", help="Play on the env service of this router.", metavar="URL"),
    ] = None,
    code: With = None,
    requirements: Requirements = None,
    as_json: opt.AsJson = False,
) -> None:
    """Play a few tasks with a scripted policy, down to groups and advantages; no services.

    With --on the env service of a router plays them.
    """
    is_task = names_a_task(spec)
    if not is_task and not spec.exists():
        registered = plugins.registered(plugins.TASKS)
        hint = suggest(str(spec), registered)
        raise InvalidArgumentError(
            f"there is no file '{spec}', and no task of this name is installed here; {hint}. A "
            "task that only a router has goes with --on in a spec"
        )
    job_spec = _task_alone(str(spec), overrides) if is_task else _read(spec, overrides)
    if router is not None:
        document = _played_on(router, job_spec, num_tasks or 3, code, requirements)
        for missing in () if is_task else document.notes:
            note(f"warning: {missing}. Played without, a job would be refused")
        print_episodes(document.episodes, as_json=as_json)
        return
    if code or requirements:
        raise InvalidArgumentError("--with and --requirements send code to a router: give --on URL")
    _check(job_spec)
    played = telling_where(
        lambda: asyncio.run(dry_run(job_spec, num_tasks=num_tasks or 2)),
        f"task '{job_spec.task.name}' still plays",
        note,
    )
    if warning := few_turns(load_parts(job_spec)):
        note(f"warning: {warning}")
    print_episodes([episode_document(episode) for episode in played], as_json=as_json)


def _played_on(
    url: str,
    spec: JobSpec,
    num_tasks: int,
    code: list[Path] | None,
    requirements: Path | None,
) -> DryRunDocument:
    """Episodes that the router at ``url`` plays of ``spec``."""
    spec, bundle = bundled(spec, code, requirements)
    with opt.connect(url, None) as client:
        upload(client, bundle)
        return client.play_dry_run(spec.model_dump(mode="json"), num_tasks=num_tasks)


def print_episodes(episodes: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print what ``episode_document`` made of a dry run's episodes."""
    if as_json:
        print_json(list(episodes))
        return
    console = out()
    for episode in episodes:
        how = "solved" if episode["is_success"] else "not solved"
        console.print(
            f"{episode['task_id']}: {how} in {episode['num_turns']} turns, team return "
            f"{episode['team_return']:.3f}",
        )
        console.print(_table(episode))
    for agent in untaught(episodes):
        note(
            f"{agent}: its advantages are all 0, so these tasks teach it nothing. If it stays so "
            f"with more tasks (--num-tasks), {PAY_ITS_ANSWERS}"
        )


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
    """Raise SpecInvalidError for what a router would refuse of a spec that can be read."""
    of_models = [*context_issues(spec), *vision_issues(spec), *architecture_issues(spec)]
    of_learning = [*submission_issues(spec), *faults_of_demonstrations(spec)]
    if issues := [*tracker_issues(spec), *of_learning, *of_models]:
        raise SpecInvalidError(issues)


def _read(path: Path, overrides: opt.Overrides) -> JobSpec:
    spec = read_spec(path, overrides or ())
    teachers = {policy.teacher for policy in spec.policies.values()}
    for name in unused_policies(path, spec):
        hint = "; a teacher is a model, no policy: name the model itself" * (name in teachers)
        err().print(
            f"warning: /policies/{name}: no agent samples from this policy, so it is neither "
            f"loaded nor trained; map an agent to it, or remove it{hint}",
        )
    return spec


def _table(episode: Mapping[str, Any]) -> Table:
    table = Table("turn", "agent", "policy", "prompt", "rewards", "advantages", "chosen", box=None)
    for group in episode["groups"]:
        candidates = group["candidates"]
        table.add_row(
            str(group["turn"]),
            group["agent"],
            group["policy"],
            ", ".join(digest[:8] for digest in group["prompts"]),
            " ".join(f"{c['reward']:.2f}" for c in candidates),
            " ".join(f"{c['advantage']:+.2f}" for c in candidates),
            ",".join(str(c["index"]) for c in candidates if c["is_chosen"]),
        )
    return table


def bundle(
    spec: opt.SpecPath,
    code: With = None,
    requirements: Requirements = None,
    archive: Annotated[
        Path | None, typer.Option("--out", help="Write the archive to this file too.")
    ] = None,
    overrides: opt.Overrides = None,
    as_json: opt.AsJson = False,
) -> None:
    """Print a spec as `submit --with` sends it: with its bundle's digest and the task's facts."""
    del as_json  # a spec is JSON either way
    document, made = bundled(_read(spec, overrides), code, requirements)
    if made is None:
        raise InvalidArgumentError("name the code with --with")
    if archive is not None:
        replace_file(archive, made.archive)
    print_json(document.model_dump(mode="json"))
