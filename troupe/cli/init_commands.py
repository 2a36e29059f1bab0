"""``troupe init``: asks five questions and writes a job spec with comments."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
import yaml
from rich.prompt import Confirm, IntPrompt, Prompt

from troupe import plugins
from troupe.cli import options as opt
from troupe.cli.output import err, note, out, print_json
from troupe.cli.starter import MODEL, starter_spec
from troupe.errors import ConflictError, InvalidArgumentError
from troupe.spec import parse_spec
from troupe.spec.issues import suggest

_COMMENTS = {
    "name": "Names the run folder: runs/<name>-1, runs/<name>-2, ...",
    "seed": "Same spec and seed, same curve.",
    "steps": "Training steps; each plays tasks, learns, and pushes the new weights.",
    "tasks_per_step": "Task instances that one step plays.",
    "task": "What the team does; `troupe dryrun` shows an episode.",
    "workflow": "Who acts in which order inside one turn, and for how many turns.",
    "agents": "Seat -> policy: agents that name one policy share its weights.",
    "policies": "The weights that are trained. model: a local folder or a hub id.",
    "algorithm": "AT-GRPO: K candidates for each agent and turn, compared with each other.",
    "sampling": "Longest completion, in tokens.",
    "eval": "Success on tasks that are never trained on, before, after and between.",
}


def init(
    target: Annotated[Path, typer.Argument(help="File to write.", metavar="FILE")] = Path(
        "job.yaml"
    ),
    task: Annotated[str | None, typer.Option(help="Task family.")] = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub id.")] = None,
    sharing: Annotated[
        str | None, typer.Option(help="shared: one policy for all agents; each: one per agent.")
    ] = None,
    small: Annotated[
        bool | None, typer.Option("--small/--large", help="For a machine without a GPU, or with.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Training steps.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job [the task's].")] = None,
    is_quiet: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing; use the defaults.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write a first job spec: five questions, about 30 lines with comments."""
    if target.exists() and not overwrite:
        raise ConflictError(f"{target} exists already; give another name, or --force")
    asks = not is_quiet and not as_json and err().is_terminal
    families = plugins.registered(plugins.TASKS)
    task = task or (_ask("1/5 Task", families, "plan_path") if asks else "plan_path")
    if ":" not in task and task not in families:
        hint = suggest(task, families)
        raise InvalidArgumentError(f"no task is called '{task}'; {hint}", pointer="/task/name")
    if small is None:
        small = asks and not Confirm.ask("2/5 Is there a GPU", default=True, console=err())
    if model is None:
        default = f"models/{task}" if small else MODEL
        words = "3/5 Model (folder or hub id)"
        model = Prompt.ask(words, default=default, console=err()) if asks else default
    if sharing is None:
        words = "4/5 Policies: one for all agents, or one for each"
        sharing = _ask(words, ["shared", "each"], "shared") if asks else "shared"
    if sharing not in ("shared", "each"):
        raise InvalidArgumentError(f"--sharing is 'shared' or 'each', not '{sharing}'")
    if steps is None:
        steps = IntPrompt.ask("5/5 Training steps", default=40, console=err()) if asks else 40
    document = starter_spec(
        task,
        name=name or "",
        model=model,
        sharing=sharing,
        steps=steps,
        is_small=small,
    )
    parse_spec(document, source=str(target))
    _write(target, document)
    _tell(target, document, is_small=small, as_json=as_json)


def commented(document: dict[str, Any]) -> str:
    """``document`` as YAML with a comment above each part."""
    parts: list[str] = []
    for key, value in document.items():
        text = _part(key, value)
        comment = f"# {_COMMENTS[key]}\n" if key in _COMMENTS else ""
        parts.append(comment + text)
    return "".join(parts)


def _part(key: str, value: Any) -> str:
    """One part of a spec as YAML: its inmost mappings stay on one line."""
    if not isinstance(value, dict):
        return yaml.safe_dump({key: value})
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=100)
    if text.startswith("{"):
        return f"{key}: {text}"
    return f"{key}:\n" + "".join(f"  {line}\n" for line in text.splitlines())


def _write(target: Path, document: dict[str, Any]) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(commented(document), encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"{target} can't be written: {error.strerror}") from error


def _tell(target: Path, document: dict[str, Any], *, is_small: bool, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(target), "spec": document})
        return
    out().print(f"wrote {target}")
    model = next(iter(document["policies"].values()))["model"]
    if is_small and not Path(model).is_dir():
        task = quote(document["task"]["name"])
        note(f"make its model:  troupe model tiny --task {task} --out {quote(model)}")
    note(f"look at it:      troupe dryrun {quote(str(target))}")
    note(f"train:           troupe train {quote(str(target))}")


def _ask(words: str, choices: list[str], default: str) -> str:
    return Prompt.ask(words, choices=choices, default=default, console=err())
