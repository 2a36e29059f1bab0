"""``troupe report``: writes the page of a run."""

from pathlib import Path
from typing import Annotated

import typer

from troupe.cli import options as opt
from troupe.cli.export_commands import run_folder_of
from troupe.cli.output import out, print_json
from troupe.durable import replace_file
from troupe.publishing.page.write import page_of


def report(
    job: opt.JobArgument,
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write [RUN/report.html].")
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Folder of `troupe eval --out`: teams compared, such as an ablation."),
    ] = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Write a run as one HTML page to send to a colleague: curve, episodes, cost, spec.

    The page needs no other file and no network, and runs no script. It needs no platform.
    """
    folder = run_folder_of(job, runs_dir)
    path = target or folder / "report.html"
    page = page_of(folder, evaluation)
    replace_file(path, page)
    size_bytes = len(page.encode())
    if as_json:
        print_json({"path": str(path), "size_bytes": size_bytes})
    else:
        out().print(f"{path} ({size_bytes / 1e3:,.0f} kB)")
