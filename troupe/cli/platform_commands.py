"""``troupe up``, ``down`` and ``status``: start, stop and show this machine's platform."""

from typing import Any

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli import platform
from troupe.cli.output import EXIT_FAILED, note, out, print_json
from troupe.cli.platform_record import PlatformConfig
from troupe.cli.settings import CliSettings, settings_from
from troupe.clients.rest.errors import UnauthenticatedError
from troupe.errors import TroupeError
from troupe.runtime.launch.records import ProcRecord
from troupe.runtime.streams.redis import without_password


def up(
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
    """Start Redis and the router in the background, and keep them alive."""
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
    config, is_new = platform.up(settings)
    active = _active(config, settings.api_key) if is_new else []
    if as_json:
        logs = str(config.state_dir / platform.OWNER / "logs")
        document = {"rest_url": config.rest_url, "is_new": is_new, "logs": logs, "jobs": active}
        print_json(document)
        return
    out().print(f"{'started' if is_new else 'already up'}: {config.rest_url}")
    note(f"logs: {config.state_dir / platform.OWNER / 'logs'}; end it with `troupe down`")
    if active:
        note(f"jobs that go on: {', '.join(active)}")


def _active(config: PlatformConfig, api_key: str) -> list[str]:
    """The jobs that go on; empty when the router requires a key and there is none."""
    try:
        with config.client(api_key=api_key) as client:
            return [job.job_id for job in client.jobs() if not job.is_over]
    except UnauthenticatedError:
        note("the router asks for an API key: set TROUPE_API_KEY to one for the other commands")
        return []


def down(runs_dir: opt.RunsDir = None, as_json: opt.AsJson = False) -> None:
    """Stop the platform and its jobs' processes; unfinished jobs continue at the next `up`."""
    settings = settings_from(runs_dir=runs_dir)
    was_up = platform.down(settings)
    if as_json:
        print_json({"was_up": was_up})
        return
    out().print("stopped" if was_up else f"nothing runs in {settings.runs_dir}")


def status(runs_dir: opt.RunsDir = None, as_json: opt.AsJson = False) -> None:
    """Show the platform, its processes and its jobs; status 1 when it is down or not ready."""
    settings = settings_from(runs_dir=runs_dir)
    document = _status(settings)
    if as_json:
        print_json(document)
    else:
        _show(document)
    if not document["is_ready"]:
        raise typer.Exit(EXIT_FAILED)


def _status(settings: CliSettings) -> dict[str, Any]:
    config = platform.running(settings.runs_dir)
    processes = [
        {"owner": owner, **_process(record)}
        for owner, records in platform.processes(settings.runs_dir).items()
        for record in records
    ]
    document: dict[str, Any] = {
        "is_up": config is not None,
        "is_ready": False,
        "rest_url": config.rest_url if config else None,
        "redis_url": without_password(config.redis_url) if config else None,
        "supervisor_pid": config.pid if config else None,
        "processes": processes,
        "jobs": [],
    }
    if config is None:
        return document
    with config.client(timeout_s=5.0, api_key=settings.api_key) as client:
        document["is_ready"] = client.is_up()
        try:
            jobs = client.jobs(limit=20)
        except TroupeError as error:
            document["error"] = error.message
        else:
            document["jobs"] = [job.model_dump(exclude={"spec"}) for job in jobs]
    return document


def _process(record: ProcRecord) -> dict[str, Any]:
    is_alive = platform.is_alive(record)
    state = "dead" if record.state == "running" and not is_alive else record.state
    return {
        "name": record.name,
        "state": state,
        "pid": record.pid if is_alive else None,
        "restarts": record.restarts,
        "log": record.log,
    }


def _show(document: dict[str, Any]) -> None:
    console = out()
    if not document["is_up"]:
        console.print("the platform is down; start it with `troupe up`")
        return
    ready = "ready" if document["is_ready"] else "not ready"
    console.print(f"router {document['rest_url']} {ready}; Redis {document['redis_url']}")
    processes = Table("owner", "process", "state", "pid", "restarts", box=None)
    for p in document["processes"]:
        pid = str(p["pid"] or "-")
        processes.add_row(p["owner"], p["name"], p["state"], pid, str(p["restarts"]))
    console.print(processes)
    if document["jobs"]:
        jobs = Table("job", "state", "step", box=None)
        for job in document["jobs"]:
            jobs.add_row(job["job_id"], job["state"], f"{job['step']}/{job['steps']}")
        console.print(jobs)
