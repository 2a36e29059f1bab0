"""``troupe submit``, ``watch``, ``cancel`` and ``jobs``: jobs of a router that runs."""

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.follow import exit_status, print_outcome, watch
from troupe.cli.output import EXIT_INTERRUPTED, note, out, print_json
from troupe.cli.settings import settings_from
from troupe.cli.specs import read_spec, with_local_models
from troupe.clients.rest import Job, RestClient


def submit(
    spec: opt.SpecPath,
    overrides: opt.Overrides = None,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Submit a job to a router that runs, and print its id."""
    settings = settings_from(rest_url=url, runs_dir=runs_dir)
    document = read_spec(spec, overrides or ())
    if not opt.is_remote(settings):
        document = with_local_models(document)
    with opt.client_for(settings) as client:
        job = client.submit(document.model_dump(mode="json"))
    if as_json:
        print_json(job.model_dump())
    else:
        out().print(job.job_id, markup=False)


def watch_job(
    job: opt.JobArgument,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Follow a job until it ends; Ctrl-C stops watching, not the job."""
    settings = settings_from(rest_url=url, runs_dir=runs_dir)
    with opt.client_for(settings, retry_for_s=opt.RETRY_FOR_S) as client:
        found = client.job(opt.job_id_of(job))
        try:
            ended = watch(client, found, quiet=as_json)
        except KeyboardInterrupt:
            note(
                f"no longer watching; the job goes on. `troupe watch {found.job_id}` shows it "
                f"again, `troupe cancel {found.job_id}` ends it."
            )
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        print_json(ended.model_dump())
    else:
        print_outcome(ended)
    raise typer.Exit(exit_status(ended))


def cancel(job: opt.JobArgument, url: opt.Url = None, runs_dir: opt.RunsDir = None) -> None:
    """End a job; what it learned stays in its run folder."""
    with _client(url, runs_dir) as client:
        found = client.cancel(opt.job_id_of(job))
    out().print(f"{found.job_id} {found.state}", markup=False)


def jobs(
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    limit: int = typer.Option(20, min=1, max=1000, help="Newest jobs to show."),
    as_json: opt.AsJson = False,
) -> None:
    """List jobs, newest first."""
    with _client(url, runs_dir) as client:
        found = client.jobs(limit=limit)
    if as_json:
        print_json([job.model_dump(exclude={"spec"}) for job in found])
        return
    table = Table("job", "state", "step", "run folder", box=None)
    for job in found:
        table.add_row(job.job_id, _state(job), f"{job.step}/{job.steps}", job.run_dir)
    out().print(table if found else "no jobs")


def _client(url: str | None, runs_dir: opt.RunsDir) -> RestClient:
    return opt.client_for(settings_from(rest_url=url, runs_dir=runs_dir))


def _state(job: Job) -> str:
    return f"{job.state} ({job.error})" if job.error else job.state
