"""``troupe train`` and ``demo``: take a job from a spec to its results in one command.

Owns the sequence up, submit, watch, down, and the handling of interrupts. Never leaves behind a
process that it started.
"""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from troupe.bundles import Bundle
from troupe.cli import options as opt
from troupe.cli import platform
from troupe.cli.ablation import ablate
from troupe.cli.bundles import upload
from troupe.cli.checks import check_folder, check_ports
from troupe.cli.follow import exit_status, print_outcome, read_summary, watch
from troupe.cli.model_commands import make_tiny
from troupe.cli.output import EXIT_INTERRUPTED, err, note, print_json
from troupe.cli.platform_record import PlatformConfig
from troupe.cli.platform_users import PlatformUsers, users_of
from troupe.cli.settings import CliSettings, settings_from
from troupe.cli.specs import is_missing_folder, read_spec, tiny_model_args, with_local_paths
from troupe.clients.rest import JobDocument, RestClient
from troupe.episodes.build import load_parts
from troupe.errors import InvalidArgumentError, NotFoundError, TroupeError
from troupe.spec import JobSpec, load_spec
from troupe.spec.resuming import check_same_job
from troupe.training.task import TASK_NAME

DEMO_SPEC = Path(__file__).with_name("demo.yaml")
"""Part of the package, so that the demo runs where there is no checkout."""
_CANCEL_WITHIN_S = 30.0

Begin = Callable[[RestClient], JobDocument]
"""Submits or resumes the job."""


def train(
    spec: Annotated[Path | None, typer.Argument(help="Job spec.", metavar="SPEC")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Run folder of a job to continue, instead of SPEC.")
    ] = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = None,
    redis_url: opt.RedisUrl = None,
    rest_port: opt.RestPort = None,
    grpc_port: opt.GrpcPort = None,
    admin_port: opt.AdminPort = None,
    redis_port: opt.RedisPort = None,
    port_base: opt.PortBase = None,
    ports: opt.Ports = None,
    as_json: opt.AsJson = False,
) -> None:
    """Train a team: start what is needed, submit, show progress, stop what was started."""
    if (spec is None) == (resume is None):
        raise InvalidArgumentError(
            "give either a job spec (`troupe train spec.yaml`) or a run folder to go on with "
            "(`troupe train --resume runs/demo-1`)"
        )
    if resume is not None:
        folder = run_folder(resume)
        if runs_dir is not None and runs_dir.resolve() != folder.resolve().parent:
            raise InvalidArgumentError(
                f"--runs-dir {runs_dir}: a resumed run stays where it is, in {folder}; leave it out"
            )
        runs_dir = folder.parent
    settings = settings_from(
        runs_dir=runs_dir,
        redis_url=redis_url,
        rest_port=rest_port,
        grpc_port=grpc_port,
        admin_port=admin_port,
        redis_port=redis_port,
        port_base=port_base,
        ports=ports,
    )
    if resume is not None:
        begin = _resuming(run_folder(resume), overrides or [])
    else:
        assert spec is not None
        begin = submitting(with_local_paths(read_spec(spec, overrides or ())))
    raise typer.Exit(run_job(settings, begin, as_json=as_json))


def demo(
    spec: Annotated[
        Path, typer.Option(help="Job spec.", show_default="examples/demo.yaml")
    ] = DEMO_SPEC,
    steps: Annotated[
        int | None, typer.Option(help="Training steps, instead of the spec's.")
    ] = None,
    ablation: Annotated[
        int, typer.Option(min=0, help="Test tasks of the ablation that ends it; 0: none.")
    ] = 200,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = None,
    port_base: opt.PortBase = None,
    ports: opt.Ports = None,
    as_json: opt.AsJson = False,
) -> None:
    """Train the example team from nothing: make the base model, then `troupe train`.

    Ends with the success of the team, of each seat with random partners, and of the base.
    """
    settings = settings_from(runs_dir=runs_dir, port_base=port_base, ports=ports)
    if platform.running(settings.runs_dir) is None and settings.ports != "auto":
        check_ports(settings)
    check_folder(settings.runs_dir)
    changes = [*(overrides or ()), *([] if steps is None else [f"steps={steps}"])]
    job_spec = read_spec(spec, changes)
    for model in dict.fromkeys(policy.model for policy in job_spec.policies.values()):
        folder = Path(model)
        if is_missing_folder(model) or (folder / "manifest.json").is_file():
            note(f"base model {model}: made once, then kept")
            make_tiny(folder, tiny_model_args(job_spec, model), says=err())
    begin = submitting(with_local_paths(job_spec))
    raise typer.Exit(run_job(settings, begin, as_json=as_json, ablation=ablation))


def run_job(
    settings: CliSettings, begin: Begin, *, as_json: bool = False, ablation: int = 0
) -> int:
    """Up, begin, watch, down, and an ablation on so many tasks; the job's exit status."""
    try:
        job = job_to_end(settings, begin, quiet=as_json)
        if not as_json:
            print_outcome(job)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    has_ablation = ablation and job.state == "succeeded"
    ablated = _ablated(Path(job.run_dir), ablation, quiet=as_json) if has_ablation else {}
    if as_json:
        summary = read_summary(Path(job.run_dir))
        print_json({**job.model_dump(exclude={"spec"}), "summary": summary, **ablated})
    return exit_status(job)


def _ablated(run_dir: Path, num_tasks: int, *, quiet: bool) -> dict[str, Any]:
    """The ablation's part of the job's document: none, and a note, where it did not come about."""
    try:
        spec = load_spec(run_dir / "spec.json")
        return {"ablation": ablate(spec, run_dir, num_tasks, quiet=quiet)}
    except KeyboardInterrupt:
        why = "interrupted"
    except TroupeError as error:
        why = error.message
    except Exception as error:  # of a family or a model's library
        why = f"{type(error).__name__}: {error}"
    note(f"the job succeeded; its ablation did not come about: {why}")
    return {}


def job_to_end(
    settings: CliSettings,
    begin: Begin,
    *,
    quiet: bool = False,
    go_on: Callable[[Path], str] = "troupe train --resume {}".format,
    is_judge: bool = False,
) -> JobDocument:
    """Up, begin, watch, down; the job in its final state.

    A platform that was started here is stopped by the last of this process's calls that use it, and
    stays up for jobs that others submitted meanwhile. ``go_on`` says how to continue the run in a
    folder, after an interrupt. A job that this process judges (``is_judge``) never goes on without
    it: whatever ends the watching ends the job.

    Raises KeyboardInterrupt after a job was interrupted and, where this call started the platform
    or judges, ended in order.
    """
    job: JobDocument | None = None
    users = users_of(settings.runs_dir)
    try:
        with users.lock:
            config, is_started_here = platform.up(settings)
            users.num += 1
            users.is_started_here |= is_started_here
    except KeyboardInterrupt:
        note("interrupted before the job was submitted; what was started is stopped")
        raise
    try:
        with config.client(api_key=settings.api_key, retry_for_s=opt.RETRY_FOR_S) as client:
            if is_started_here:
                users.known = {present.job_id for present in client.jobs()}
            job = begin(client)
            if not quiet:
                note(f"{job.job_id}: run folder {job.run_dir}, router {config.rest_url}")
            return watch(client, job, quiet=quiet)
    except KeyboardInterrupt:
        is_over = is_started_here or is_judge
        _on_interrupt(config, job, settings.api_key, go_on if is_over else None)
        raise
    except BaseException as error:
        if is_judge and job is not None:
            why = f"nobody watches any more ({type(error).__name__})"
            _end_job(config, job, settings.api_key, go_on, why)
        raise
    finally:
        _undisturbed(lambda: _leave(users, settings, config, job, quiet=quiet))


def _leave(
    users: PlatformUsers,
    settings: CliSettings,
    config: PlatformConfig,
    job: JobDocument | None,
    *,
    quiet: bool,
) -> None:
    """The last of the users stops what one of them started, unless others' jobs run there."""
    with users.lock:
        users.num -= 1
        if job is not None:
            users.known.add(job.job_id)
        if users.num or not users.is_started_here:
            return
        users.is_started_here = False
        used_by = _new_jobs(config, settings.api_key, users.known)
        if not used_by:
            platform.down(settings)
        elif not quiet:
            note(
                f"the platform stays up for {', '.join(used_by)}, submitted meanwhile; "
                f"`troupe down --runs-dir {_shown(settings.runs_dir.absolute())}` ends it"
            )


def _new_jobs(config: PlatformConfig, api_key: str, known: set[str]) -> list[str]:
    """Jobs beside the ``known`` that are not over; none of a router that does not answer."""
    try:
        with config.client(timeout_s=10.0, api_key=api_key) as client:
            jobs = client.jobs()
    except TroupeError:
        return []
    return [job.job_id for job in jobs if not job.is_over and job.job_id not in known]


def _on_interrupt(
    config: PlatformConfig,
    job: JobDocument | None,
    api_key: str,
    go_on: Callable[[Path], str] | None,
) -> None:
    """End the job when its platform or its judge ends here; else (no ``go_on``) let it go on."""
    if job is None:
        note("interrupted before the job was submitted")
        return
    if go_on is None:
        note(
            f"no longer watching; the job goes on, because the platform was up before. "
            f"`troupe watch {job.job_id}` shows it, `troupe cancel {job.job_id}` ends it."
        )
        return
    _end_job(config, job, api_key, go_on, "\ninterrupted")


def _end_job(
    config: PlatformConfig,
    job: JobDocument,
    api_key: str,
    go_on: Callable[[Path], str],
    why: str,
) -> None:
    note(f"{why}: ending the job and its processes ...")
    try:
        with config.client(timeout_s=10.0, api_key=api_key) as client:
            ended = client.cancel(job.job_id)
            if not ended.is_over:
                _await_end(client, job.job_id)
    except TroupeError as error:
        err().print(
            f"the job could not be cancelled ({error.message}); where it still runs, "
            f"`troupe cancel {job.job_id}` ends it"
        )
    note(f"go on with: {go_on(_shown(Path(job.run_dir)))}")


def _await_end(client: RestClient, job_id: str) -> None:
    deadline = time.monotonic() + _CANCEL_WITHIN_S
    while not client.job(job_id).is_over:
        if time.monotonic() > deadline:
            note(
                f"the job did not end within {_CANCEL_WITHIN_S:.0f} s; a platform that was started "
                "here stops its processes, another one goes on to end it"
            )
            return
        time.sleep(0.2)


def _undisturbed(end: Callable[[], None]) -> None:
    """``end``, whose waits are bounded, so a second Ctrl-C cannot cut it short."""
    if threading.current_thread() is not threading.main_thread():
        end()  # signals reach the main thread alone
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end()
    finally:
        signal.signal(signal.SIGINT, before)


def submitting(spec: JobSpec, bundle: Bundle | None = None) -> Begin:
    """A function that submits ``spec``, after everything that it names was loaded once."""

    def begin(client: RestClient) -> JobDocument:
        upload(client, bundle)
        return client.submit(spec)

    load_parts(spec)
    return begin


def _resuming(folder: Path, overrides: list[str]) -> Begin:
    stored = load_spec(folder / "spec.json")
    if stored.task.name == TASK_NAME:
        raise InvalidArgumentError(
            f"the reward of {folder.name} is a Python function of the process that called "
            f"troupe.train; go on from Python: troupe.resume({str(folder)!r}, dataset, reward, ...)"
        )
    spec = read_spec(folder / "spec.json", overrides) if overrides else None
    if spec:
        check_same_job(_shown(folder), stored, spec)  # as the router does, before it is started
    document = spec.model_dump(mode="json") if spec else None
    return lambda client: client.resume(folder.name, document)


def run_folder(path: Path) -> Path:
    """``path`` as an absolute path; raises NotFoundError when it is not a job's run folder."""
    folder = path.expanduser().resolve()
    if not (folder / "spec.json").is_file():
        raise NotFoundError(
            f"{path} is not a run folder (there is no spec.json in it); give one such as "
            "runs/demo-1, `troupe jobs` lists them"
        )
    return folder


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
