"""``troupe export``: writes a checkpoint as a PEFT adapter and a merged model."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from troupe.cli import options as opt
from troupe.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, err, out, print_json
from troupe.cli.settings import settings_from
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec import load_spec
from troupe.spec.issues import suggest


def export(
    job: opt.JobArgument,
    checkpoint: Annotated[
        str, typer.Option(help="'latest', 'best' (of checkpoint.keep_best) or a step.")
    ] = "latest",
    target: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write to [RUN/exports/CHECKPOINT]."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Only this policy; may be repeated.")
    ] = None,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Write a checkpoint's policies as files that plain transformers and peft load.

    A job exports its last step by itself; this is for any other checkpoint, and for jobs that
    have not ended. It needs no platform.
    """
    folder = run_folder_of(job, runs_dir)
    paths = export_checkpoint(folder, checkpoint, target, policy or ())
    if as_json:
        print_json(paths)
        return
    for name, paths_by_kind in paths.items():
        for kind, path in paths_by_kind.items():
            out().print(f"{name} {kind} {path}")


def run_folder_of(job: str, runs_dir: Path | None) -> Path:
    """The run folder that ``job`` names; raises InvalidArgumentError where it is none."""
    folder = Path(job) if "/" in job else settings_from(runs_dir=runs_dir).runs_dir / job
    if not (folder / "spec.json").is_file():
        raise InvalidArgumentError(
            f"{folder} is not a run folder (there is no spec.json in it); give a job id of "
            "--runs-dir, or the folder"
        )
    return folder


def export_checkpoint(
    folder: Path, checkpoint: str, target: Path | None = None, policies: Sequence[str] = ()
) -> dict[str, dict[str, str]]:
    """Export in a process of its own, since it needs torch; the paths by policy and kind.

    Raises typer.Exit where it fails, after it said why.
    """
    known = load_spec(folder / "spec.json").policies if policies else {}
    for name in policies:
        if name not in known:
            raise NotFoundError(f"the job has no policy '{name}'; {suggest(name, known)}")
    target = target or folder / "exports" / checkpoint
    args = ["--run-dir", str(folder), "--checkpoint", checkpoint, "--out", str(target)]
    args += [part for name in policies for part in ("--policy", name)]
    command = [sys.executable, "-m", "troupe_trainer.checkpoint.offline_export", *args]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode == EXIT_BAD_INPUT:
        raise typer.Exit(EXIT_BAD_INPUT)
    if done.returncode != 0:
        err().print(
            "error: nothing was exported, for the reason above. Exporting needs the trainer's "
            "packages: pip install 'troupe[trainer]'.",
        )
        raise typer.Exit(EXIT_FAILED)
    paths: dict[str, dict[str, str]] = json.loads(done.stdout)
    return paths
