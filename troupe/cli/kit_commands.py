"""``troupe new`` and ``troupe check``: make a task package, and try to break a task family."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from troupe.cli import options as opt
from troupe.cli.output import EXIT_FAILED, note, out, print_json
from troupe.conformance import CheckLimits, CheckReport, Reference, check_family
from troupe.conformance.sandbox import DEFAULT, sandbox_for
from troupe.conformance.scaffold import class_name, write_task_file, write_task_package
from troupe.conformance.target import find_targets, load_target


class NewKind(StrEnum):
    """What ``troupe new`` makes."""

    task = "task"


def new(
    kind: Annotated[NewKind, typer.Argument(help="What to make.")],
    name: Annotated[str, typer.Argument(help="Its name: lower case, with _ between words.")],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write to [.; of a package ./NAME, new or empty]."),
    ] = None,
    is_package: Annotated[
        bool, typer.Option("--package", help="An installable package with tests, not one file.")
    ] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Make a small working task in one file, or as a package, to be changed into your own."""
    if is_package:
        target = write_task_package(name, folder or Path(name))
        files = sorted(path for path in target.rglob("*") if path.is_file())
        following = [f"troupe check {target}", f"pip install -e {target} && pytest {target}"]
    else:
        target = folder or Path()
        files = write_task_file(name, target)
        task = f"{files[0]}:{class_name(name)}"
        following = [f"troupe check {task}", f"troupe dryrun {task}"]
    if as_json:
        shown = [str(path) for path in files]
        print_json({"kind": kind, "name": name, "folder": str(target), "files": shown})
        return
    out().print(f"{target if is_package else files[0]} is made; next:")
    for line in following:
        out().print(f"  {line}")


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="Registered task, module:attr, file.py:attr, package folder, or job spec.",
            metavar="TASK",
        ),
    ],
    params: Annotated[str | None, typer.Option(help="Task parameters, JSON.")] = None,
    num_tasks: Annotated[int, typer.Option(min=1, max=1000, help="Tasks to play.")] = 6,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for the searches.")] = 10.0,
    total_seconds: Annotated[
        float, typer.Option(min=1.0, help="About the time of all checks; longer tries more.")
    ] = 60.0,
    step_limit: Annotated[
        float | None,
        typer.Option(min=0.01, help="Seconds that a step may take [2; 60 if it runs programs]."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the searches.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run this check alone; may be repeated.")
    ] = None,
    sandbox: Annotated[str, typer.Option(help="Sandbox for tasks that run programs.")] = DEFAULT,
    as_json: opt.AsJson = False,
) -> None:
    """Try to break a task family: purity, replay, forks, splits, bounded reward, odd texts."""
    limits = CheckLimits(
        num_tasks=num_tasks,
        seconds=seconds,
        total_seconds=total_seconds,
        step_limit_s=step_limit,
        seed=seed,
    )
    reports = [
        _checked(reference, limits, only, sandbox)
        for reference in find_targets(target, opt.params_of(params))
    ]
    if as_json:
        documents = [report.document() for report in reports]
        print_json(documents[0] if len(documents) == 1 else documents)
    else:
        for report in reports:
            _tell(report)
    if not all(report.is_ok for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _checked(
    reference: Reference, limits: CheckLimits, only: list[str] | None, sandbox_name: str
) -> CheckReport:
    family = load_target(reference)
    reference = replace(reference, sandbox=sandbox_name)
    sandbox = sandbox_for(family, sandbox_name)
    try:
        return check_family(
            family,
            reference=reference,
            sandbox=sandbox,
            limits=limits,
            only=only,
            on_check=lambda name: note(f"{reference.name}: {name} ..."),
        )
    finally:
        if sandbox is not None:
            sandbox.close()


def _tell(report: CheckReport) -> None:
    out().print(report.text())
    counts = {word: len(report.named(word)) for word in ("passed", "warned", "failed", "skipped")}
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    note(f"{report.family}: {summary}")
