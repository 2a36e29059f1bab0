"""``troupe serve``: puts a trained team behind an OpenAI-compatible endpoint.

Owns flags alone: the command becomes the process `python -m troupe_router.serve`, so signals and
exit status are that process's own.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from troupe.cli.options import AsJson
from troupe.cli.output import note
from troupe.cli.settings import HOST, SERVE_PORT, settings_from
from troupe.errors import InvalidArgumentError
from troupe.publishing.fetch import fetch_team
from troupe.publishing.manifest import MANIFEST
from troupe.publishing.team_folder import open_team

_MODULE = "troupe_router.serve"
_PREFIX = "TROUPE_SERVE_"


def serve(
    team: Annotated[
        str,
        typer.Argument(
            help="Run folder of a job that succeeded, or a published team: a folder, "
            "hub:ORG/NAME or oci:HOST/REPO:TAG."
        ),
    ],
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None,
    port: Annotated[
        int | None, typer.Option(help="0 takes a free one [8490].", min=0, max=65535)
    ] = None,
    engine: Annotated[str | None, typer.Option(help="cpu, sglang or another engine [cpu].")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of `troupe export` [the job's end].")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option("--api-keys", help="File of API keys (`troupe keys add`).")
    ] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="No keys on a public address either.")
    ] = False,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM certificate: https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its PEM key.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="Of the log on stderr.")
    ] = "warning",
    as_json: AsJson = False,
) -> None:
    """Serve a trained team by OpenAI's API: each agent is a model, and so is the team.

    Runs until Ctrl-C or SIGTERM, then answers what was asked. Further limits are TROUPE_SERVE_*
    variables (docs/serving.md). Needs no platform.
    """
    if importlib.util.find_spec("uvicorn") is None:
        raise InvalidArgumentError("serving needs more packages: pip install 'troupe[local]'")
    folder = fetch_team(team, settings_from().cache_dir.expanduser())
    if not any((folder / name).is_file() for name in (MANIFEST, "spec.json")):
        open_team(folder)  # says so, as the process would after it has loaded torch
    given = {
        "TEAM": folder,
        "REST_ADDRESS": None if host is None and port is None else _address(host, port),
        "ENGINE": engine,
        "CHECKPOINT": checkpoint,
        "API_KEYS": api_keys,
        "ALLOW_ANONYMOUS": "true" if allow_anonymous else None,
        "TLS_CERTIFICATE": tls_certificate,
        "TLS_KEY": tls_key,
        "LOG_LEVEL": log_level,
        "PRINTS_JSON": "true" if as_json else None,
    }
    settings = {_PREFIX + name: str(value) for name, value in given.items() if value is not None}
    note(f"loading {team}; a line follows when it answers")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", _MODULE], {**os.environ, **settings})


def _address(host: str | None, port: int | None) -> str:
    return f"{host or HOST}:{SERVE_PORT if port is None else port}"
