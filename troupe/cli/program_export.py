"""``troupe program export``: a designed plan as a program of its own, to be taken away."""

from pathlib import Path
from typing import Annotated, Any

import typer

from troupe.cli import options as opt
from troupe.cli.export_commands import run_folder_of
from troupe.cli.output import note, print_json
from troupe.conformance.sandbox import sandbox_for
from troupe.durable import replace_file
from troupe.errors import InvalidArgumentError
from troupe.evaluation.run_report import whole_lines
from troupe.spec import load_spec
from troupe.tasks.family import SPLITS, Task, TaskFamily, close_environment
from troupe.tasks.registry import load_family, make_environment
from troupe.training.results import RecordedEpisode


def export_program(
    source: Annotated[
        str, typer.Argument(help="Job spec whose task is `designed`, or a run: its folder or id.")
    ],
    task: Annotated[
        str, typer.Option("--task", help="Whose problem, and of a run whose plan: SPLIT/INDEX.")
    ] = "train/0",
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="File with a plan [the run's newest plan for the task]."),
    ] = None,
    target: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("team.py"),
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Write a designed plan as a plain LangGraph program, which needs no Troupe.

    It asks any OpenAI-compatible server: `troupe serve`, vLLM, SGLang, a provider.
    """
    is_spec = Path(source).is_file()
    folder = None if is_spec else run_folder_of(source, runs_dir)
    spec = load_spec(Path(source) if folder is None else folder / "spec.json")
    family = load_family(spec.task.name, spec.task.params)
    named = _task(family, task)
    if spec.task.name != "designed":
        raise InvalidArgumentError(
            f"the task of {source} is '{spec.task.name}', which has no plans; give a spec or a run "
            "whose task is 'designed'",
            pointer="/task/name",
        )
    if plan is not None:
        text = plan.read_text("utf-8")
    elif folder is not None:
        text = recorded_plan(folder, named.id, family.agents[0])
    else:
        raise InvalidArgumentError(
            f"{source} is a spec, which holds no plan; give a file by --plan, or a run"
        )
    program = _written(family, named, text)
    replace_file(target, program)
    num_lines = len(program.splitlines())
    if as_json:
        print_json({"file": str(target), "task": named.id, "num_lines": num_lines})
        return
    note(f"{target}: {num_lines} lines; its head says how to run it")


def recorded_plan(folder: Path, task_id: str, designer: str) -> str:
    """What ``designer`` wrote in the newest recorded episode of the task that went on from it."""
    texts = [
        said
        for line in whole_lines(folder / "episodes.jsonl")
        if line["task_id"] == task_id and (said := RecordedEpisode(line).texts.get(designer))
    ]
    if not texts:
        raise InvalidArgumentError(
            f"{folder / 'episodes.jsonl'} holds no plan of '{designer}' for {task_id}; name "
            "another task by --task, or give a plan by --plan"
        )
    return texts[-1]


def _task(family: TaskFamily, name: str) -> Task:
    split, _, index = name.partition("/")
    if split not in SPLITS or not index.isdecimal():
        raise InvalidArgumentError(
            f"--task is {name!r}; give a split ({', '.join(SPLITS)}) and an index, such as test/7"
        )
    return family.taskset().task(split, int(index))


def _written(family: TaskFamily, task: Task, plan: str) -> str:
    sandbox = sandbox_for(family)
    try:
        environment: Any = make_environment(family, sandbox)
        try:
            if not hasattr(environment, "program_of"):
                raise InvalidArgumentError(
                    f"task '{family.name}' has no plans that could be a program; give a spec or a "
                    "run whose task is 'designed'",
                    pointer="/task/name",
                )
            return str(environment.program_of(task, plan))
        finally:
            close_environment(environment)
    finally:
        if sandbox is not None:
            sandbox.close()
