"""Options of commands that send code with a job, and what they make of them."""

from pathlib import Path
from typing import Annotated

import typer

from troupe.bundles import Bundle, build_bundle, with_bundle
from troupe.clients.rest import RestClient
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec

With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        help="File or folder of code that the spec names; goes along, for env services to run.",
    ),
]
Requirements = Annotated[
    Path | None,
    typer.Option(help="List of packages with hashes that the code needs (pip-compile, uv export)."),
]


def bundled(
    spec: JobSpec, paths: list[Path] | None, requirements: Path | None
) -> tuple[JobSpec, Bundle | None]:
    """``spec`` with the bundle of ``paths``, and the bundle; as it is without any."""
    if not paths:
        if requirements is not None:
            raise InvalidArgumentError("--requirements goes with --with; name the code as well")
        return spec, None
    bundle = build_bundle(paths, requirements=requirements)
    return with_bundle(spec, bundle), bundle


def upload(client: RestClient, bundle: Bundle | None) -> None:
    """Upload the bundle, if there is one."""
    if bundle is not None:
        client.upload_bundle(bundle)
