"""The arguments and options that several commands share, each declared once."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from troupe.cli import platform
from troupe.cli.platform_record import PlatformConfig
from troupe.cli.settings import CliSettings, settings_from
from troupe.clients.rest import RestClient
from troupe.errors import InvalidArgumentError

SpecPath = Annotated[Path, typer.Argument(help="Job spec, YAML or JSON.", metavar="SPEC")]
JobArgument = Annotated[
    str,
    typer.Argument(
        help="Job id, or a run folder.",
        metavar="JOB",
        autocompletion=lambda incomplete: known_jobs(incomplete),
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a field: steps=20, policies.shared.model=models/x."),
]
Url = Annotated[
    str | None, typer.Option("--url", help="URL of the router [TROUPE_REST_URL].", metavar="URL")
]
RunsDir = Annotated[
    Path | None,
    typer.Option("--runs-dir", help="Folder of run folders [TROUPE_RUNS_DIR, ./runs]."),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(help="Redis to use instead of an embedded Valkey [TROUPE_REDIS_URL]."),
]
RestPort = Annotated[
    int | None, typer.Option(help="Port of the REST API [TROUPE_REST_PORT, 8480].")
]
GrpcPort = Annotated[int | None, typer.Option(help="Port of the router's gRPC [8481].")]
AdminPort = Annotated[int | None, typer.Option(help="Port of the router's health [8482].")]
RedisPort = Annotated[int | None, typer.Option(help="Port of the embedded Valkey [8479].")]
PortBase = Annotated[
    int | None,
    typer.Option(help="First of four ports in a row, for those not named [TROUPE_PORT_BASE]."),
]
Ports = Annotated[
    str | None,
    typer.Option(help="auto: free ports, for a second platform here [TROUPE_PORTS, fixed]."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

RETRY_FOR_S = 60.0
"""How long commands wait for a router that restarts."""


def is_remote(settings: CliSettings) -> bool:
    """True when a router was named, so nothing may be assumed about this machine."""
    return bool(settings.rest_url)


def known_jobs(incomplete: str) -> list[str]:
    """Jobs with a run folder here that begin with ``incomplete``, for shell completion."""
    folders = settings_from().runs_dir.glob("*/spec.json")
    return sorted(p.parent.name for p in folders if p.parent.name.startswith(incomplete))


def connect(url: str | None, runs_dir: Path | None, *, retry_for_s: float = 0.0) -> RestClient:
    """A client for the flags of a command."""
    settings = settings_from(rest_url=url, runs_dir=runs_dir)
    return client_for(settings, retry_for_s=retry_for_s)


def client_for(
    settings: CliSettings, *, timeout_s: float = 20.0, retry_for_s: float = 0.0
) -> RestClient:
    """A client of the named router, else of the runs folder's platform, else of the default."""
    config = platform.running(settings.runs_dir) or PlatformConfig.of(settings)
    if not settings.rest_url:
        return config.client(api_key=settings.api_key, timeout_s=timeout_s, retry_for_s=retry_for_s)
    return RestClient(
        settings.rest_url,
        api_key=settings.api_key,
        timeout_s=timeout_s,
        retry_for_s=retry_for_s,
        tls_ca=settings.router_ca,
    )


def job_id_of(text: str) -> str:
    """The job id in ``text``: itself, or the name of a run folder."""
    return Path(text).resolve().name if "/" in text else text


def params_of(text: str | None) -> dict[str, Any]:
    """The object of ``--params``; raises InvalidArgumentError for anything else."""
    try:
        params = json.loads(text) if text else {}
    except ValueError as error:
        raise InvalidArgumentError(f"--params is not JSON: {error}") from error
    if not isinstance(params, dict):
        raise InvalidArgumentError(
            f"--params holds a JSON {type(params).__name__}; give an object, "
            "for example --params '{\"size\": 6}'"
        )
    return params
