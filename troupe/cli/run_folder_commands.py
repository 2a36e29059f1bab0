"""``troupe jobs``: list jobs, bring back those that Redis lost, and remove what is too much."""

import re
from typing import Annotated

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.output import note, out, print_json
from troupe.clients.rest import JobDocument
from troupe.errors import InvalidArgumentError

jobs_app = typer.Typer(invoke_without_command=True, help="List jobs, newest first.")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]


@jobs_app.callback()
def jobs(
    context: typer.Context,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    limit: int = typer.Option(20, min=1, help="Newest jobs to show."),
    as_json: opt.AsJson = False,
) -> None:
    """List jobs, newest first."""
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    with opt.connect(url, runs_dir) as client:
        documents = client.jobs(limit=limit)
    if as_json:
        print_json([job.model_dump(exclude={"spec"}) for job in documents])
        return
    table = Table("job", "state", "step", "run folder", box=None)
    for job in documents:
        table.add_row(job.job_id, _state(job), f"{job.step}/{job.steps}", job.run_dir)
    out().print(table if documents else "no jobs")


@jobs_app.command("import")
def import_jobs(
    is_dry: Dry = False,
    earlier: Annotated[
        bool,
        typer.Option(
            "--earlier-versions",
            help="Also folders without job.json, as versions before 0.2 left them.",
        ),
    ] = False,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """List the jobs of run folders again that Redis has lost; unfinished ones are paused."""
    with opt.connect(url, runs_dir) as client:
        outcome = client.import_jobs(dry_run=is_dry, earlier_versions=earlier)
    if as_json:
        print_json(outcome.model_dump())
        return
    console = out()
    for name in outcome.imported:
        console.print(name)
    for broken in outcome.broken:
        note(f"not imported: {broken.name}: {broken.reason}")
    done = "would be imported" if is_dry else "imported"
    note(f"{len(outcome.imported)} jobs {done}; {outcome.known} were listed before")


@jobs_app.command()
def folders(url: opt.Url = None, runs_dir: opt.RunsDir = None, as_json: opt.AsJson = False) -> None:
    """List run folders as their own files say, also broken ones and those of lost jobs."""
    with opt.connect(url, runs_dir) as client:
        page = client.run_folders()
        found = list(page.folders)
        while page.next_cursor:
            page = client.run_folders(cursor=page.next_cursor)
            found += page.folders
    if as_json:
        print_json([folder.model_dump() for folder in found])
        return
    table = Table("run folder", "status", "state", "step", "reason", box=None)
    for folder in found:
        cells = (folder.status, folder.state or "-", str(folder.step), folder.reason)
        table.add_row(folder.name + (" (pinned)" if folder.is_pinned else ""), *cells)
    out().print(table if found else "no run folders")


@jobs_app.command()
def prune(
    older_than: Annotated[
        str, typer.Option(help="Jobs that ended longer ago go: 30d, 12h, 90m, 60s.")
    ] = "0",
    keep: Annotated[int, typer.Option(min=0, help="So many run folders stay; 0: any.")] = 0,
    max_size: Annotated[
        str, typer.Option(help="Run folders stay below this together: 50GB, 800MB.")
    ] = "0",
    resumable: Annotated[
        str | None,
        typer.Option(
            help="Failed, cancelled and paused jobs stay for so long [the router's, 30d]."
        ),
    ] = None,
    is_dry: Dry = False,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Remove the oldest run folders, with their jobs, until the limits hold."""
    limits = {
        "max_age_s": _amount("--older-than", older_than, _SECONDS),
        "max_jobs": keep,
        "max_bytes": int(_amount("--max-size", max_size, _BYTES)),
        "resumable_s": None if resumable is None else _amount("--resumable", resumable, _SECONDS),
    }
    if not any((limits["max_age_s"], keep, limits["max_bytes"])):
        raise InvalidArgumentError("give at least one of --older-than, --keep and --max-size")
    with opt.connect(url, runs_dir) as client:
        outcome = client.prune(**limits, dry_run=is_dry)
    if as_json:
        print_json(outcome.model_dump())
        return
    table = Table("run folder", "state", "MB", "exceeds", box=None)
    for folder in outcome.removed:
        table.add_row(folder.name, folder.state, f"{folder.size_bytes / 1e6:.1f}", folder.why)
    if outcome.removed:
        out().print(table)
    for kept in outcome.protected:
        note(f"kept: {kept.name}: {kept.reason}")
    done = "would be removed" if is_dry else "removed"
    note(
        f"{len(outcome.removed)} run folders {done}, {outcome.freed_bytes / 1e6:.1f} of "
        f"{outcome.used_bytes / 1e6:.1f} MB"
    )


@jobs_app.command()
def pin(
    job: opt.JobArgument,
    is_undone: Annotated[bool, typer.Option("--undo", help="Pin it no longer.")] = False,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Let retention keep a job and its run folder for good."""
    with opt.connect(url, runs_dir) as client:
        document = client.pin(opt.job_id_of(job), is_pinned=not is_undone)
    if as_json:
        print_json(document.model_dump(exclude={"spec"}))
    else:
        word = "pinned" if document.is_pinned else "not pinned"
        out().print(f"{document.job_id} {word}")


def _refuse_options(context: typer.Context, subcommand: str) -> None:
    """Options before a subcommand, which has its own: on another router it would remove jobs."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE":
            flag = option.opts[0]
            raise InvalidArgumentError(
                f"{flag} before '{subcommand}' has no effect on it; put {flag} after {subcommand} "
                f"where `troupe jobs {subcommand} --help` lists it, else leave it out"
            )


def _state(job: JobDocument) -> str:
    if job.queue_position is not None:
        return f"{job.state} (place {job.queue_position})"
    return f"{job.state} ({job.error})" if job.error else job.state


def _amount(option: str, text: str, units: dict[str, int]) -> float:
    """``text`` in the smallest unit: "30d" is 2592000.0."""
    parts = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([A-Za-z]*)", text.strip())
    if parts is None or parts[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        raise InvalidArgumentError(f"{option} is a number and one of {known}, not '{text}'")
    return float(parts[1]) * units[parts[2]]
