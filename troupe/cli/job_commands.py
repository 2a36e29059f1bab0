"""``troupe submit``, ``watch`` and the commands that steer a job on a running router."""

from collections.abc import Callable
from typing import Annotated, Literal

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.bundles import Requirements, With, bundled, upload
from troupe.cli.follow import exit_status, print_outcome, watch
from troupe.cli.output import EXIT_INTERRUPTED, note, out, print_json
from troupe.cli.settings import settings_from
from troupe.cli.specs import read_spec, with_local_paths
from troupe.clients.rest import JobDocument

Steering = Literal["pause", "resume", "cancel"]
"""Methods of the client that take a job and give it back."""
Priority = Annotated[
    int, typer.Option(min=-100, max=100, help="Queued jobs of a higher priority start first.")
]


def submit(
    spec: opt.SpecPath,
    overrides: opt.Overrides = None,
    priority: Priority = 0,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Plan and estimate only; start nothing.")
    ] = False,
    code: With = None,
    requirements: Requirements = None,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Submit a job to a running router, and print its id."""
    settings = settings_from(rest_url=url, runs_dir=runs_dir)
    document = read_spec(spec, overrides or ())
    if not opt.is_remote(settings):
        document = with_local_paths(document)
    document, bundle = bundled(document, code, requirements)
    with opt.client_for(settings) as client:
        upload(client, bundle)
        if is_dry:
            print_json(client.dry_run(document))
            return
        job = client.submit(document, priority=priority)
    if as_json:
        print_json(job.model_dump())
    else:
        out().print(job.job_id)


def watch_job(
    job: opt.JobArgument,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Follow a job until it ends; Ctrl-C stops watching, not the job."""
    with opt.connect(url, runs_dir) as client:  # one that restarts is waited for once it is known
        document = client.job(opt.job_id_of(job))
    with opt.connect(url, runs_dir, retry_for_s=opt.RETRY_FOR_S) as client:
        try:
            ended = watch(client, document, quiet=as_json)
        except KeyboardInterrupt:
            note(
                f"no longer watching; the job is left as it is. `troupe watch {document.job_id}` "
                f"shows it again, `troupe cancel {document.job_id}` ends it."
            )
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        print_json(ended.model_dump())
    else:
        print_outcome(ended)
    raise typer.Exit(exit_status(ended))


def steers(verb: Steering, about: str) -> Callable[..., None]:
    """A command that makes the router ``verb`` a job and prints the job's state."""

    def steer(
        job: opt.JobArgument,
        url: opt.Url = None,
        runs_dir: opt.RunsDir = None,
        as_json: opt.AsJson = False,
    ) -> None:
        with opt.connect(url, runs_dir) as client:
            ask: Callable[[str], JobDocument] = getattr(client, verb)
            _print_state(ask(opt.job_id_of(job)), as_json=as_json)

    steer.__doc__ = about
    return steer


pause = steers("pause", "Stop a job for now: its processes end and free their replicas.")
resume = steers(
    "resume",
    "Queue a paused, failed or cancelled job again; it continues from its last checkpoint.",
)
cancel = steers("cancel", "End a job; what it learned stays in its run folder.")


def delete(
    job: opt.JobArgument,
    files: Annotated[bool, typer.Option("--files", help="Remove its files too.")] = False,
    url: opt.Url = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Delete the record of an ended job; its run folder stays unless --files is given."""
    job_id = opt.job_id_of(job)
    with opt.connect(url, runs_dir) as client:
        client.delete(job_id, files=files)
    if as_json:
        print_json({"job_id": job_id, "deleted": True, "files": files})
    else:
        out().print(f"{job_id} deleted")


def queue(url: opt.Url = None, runs_dir: opt.RunsDir = None, as_json: opt.AsJson = False) -> None:
    """Show which jobs wait, and for what."""
    with opt.connect(url, runs_dir) as client:
        quota = client.quota()
    if as_json:
        print_json(quota.model_dump())
        return
    limit = quota.max_replicas or "any number of"
    out().print(f"{quota.active_jobs} jobs at work hold {quota.in_use} of {limit} replicas")
    table = Table("place", "job", "priority", "replicas", "waits for", box=None)
    for place, job in enumerate(quota.queued, 1):
        cells = (str(place), job.job_id, str(job.priority), str(job.replicas), job.waits_for)
        table.add_row(*cells)
    out().print(table if quota.queued else "no job waits")


def _print_state(job: JobDocument, *, as_json: bool) -> None:
    if as_json:
        print_json(job.model_dump(exclude={"spec"}))
    else:
        out().print(f"{job.job_id} {job.state}")
