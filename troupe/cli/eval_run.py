"""``troupe eval --task --policy``: turns flags into a plan and teams, and prints the report.

Owns defaults and the message on an interrupt. ``troupe.evaluation`` plays and computes figures.
"""

import asyncio
import json
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from troupe.cli.eval_team import flags_of_team, only_known_code, sampling_of_team, seats_of_team
from troupe.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, err, note, out, print_json
from troupe.cli.settings import settings_from
from troupe.cli.specs import with_overrides
from troupe.episodes.build import load_parts
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.evaluation.evaluation import EvalSettings, Progress, evaluate
from troupe.evaluation.plan import EvalPlan
from troupe.evaluation.refs import ChatRef, PolicyRef, RefOptions, WeightsRef
from troupe.evaluation.report import Report, report_json, report_markdown
from troupe.evaluation.settings import OpenAISettings
from troupe.evaluation.teams import Team, read_teams
from troupe.publishing.fetch import find_team
from troupe.publishing.team_folder import TeamFolder
from troupe.spec.issues import SpecInvalidError, issues_of, suggest
from troupe.tasks.family import SPLITS, TaskFamily
from troupe.tasks.registry import load_family
from troupe.tasks.usual import usual_workflow

_SHARED = ("num_tasks", "split")
"""Flags that both forms of the command take."""
_FLAG_OF = {"policies": "--policy", "num_samples": "--k", "order": "--agents", "target": "--out"}


@dataclass(frozen=True, slots=True)
class EvalFlags:
    """The flags of the command; None for each one that was left out."""

    task: str | None
    params: str | None
    policies: list[str] | None
    num_tasks: int | None
    num_samples: int | None
    split: str | None
    first_task: int | None
    seed: int | None
    order: str | None
    workflow: str | None
    max_turns: int | None
    temperature: float | None
    top_p: float | None
    max_new_tokens: int | None
    base: str | None
    base_url: str | None
    engine: str | None
    dtype: str | None
    in_flight: int | None
    target: Path | None
    team: str | None = None

    def flags_of_task_form(self) -> list[str]:
        """Flags on the command line that only this form takes."""
        names = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        return [
            _FLAG_OF.get(name, "--" + name.replace("_", "-"))
            for name in names
            if name not in _SHARED
        ]


def run_evaluation(flags: EvalFlags, overrides: Sequence[str], *, as_json: bool) -> int:
    """Evaluate and print; the exit status. ``overrides`` set parameters of the task."""
    if not flags.team:
        return _run_evaluation(_with_params_set(flags, overrides), None, as_json=as_json)
    team = find_team(flags.team, settings_from().cache_dir.expanduser())
    with only_known_code(flags, team):
        flags = _with_params_set(flags_of_team(flags, team), overrides)
        return _run_evaluation(flags, team, as_json=as_json)


def _run_evaluation(flags: EvalFlags, published: TeamFolder | None, *, as_json: bool) -> int:
    if not flags.task or not (flags.policies or published):
        raise InvalidArgumentError(
            "name what to evaluate: a run folder or a spec (`troupe eval runs/demo-1`), a task "
            "and policies (`troupe eval --task plan_path --policy scripted`), or a published team "
            "(`troupe eval --team hub:ORG/NAME`)"
        )
    family = load_family(flags.task, task_params(flags.params), pointer="")
    plan = read_plan(flags, family, published)
    openai = OpenAISettings()
    options = RefOptions(flags.base or "", flags.base_url or openai.base_url)
    load_parts(plan.job_spec(), family)
    named = read_teams(flags.policies or [], plan.workflow.order, options)
    _refuse_unused(flags, [ref for team in named for ref in team.seats.values()])
    teams = [*([seats_of_team(flags.team or "", published)] if published else []), *named]
    settings = EvalSettings(
        engine=flags.engine or "cpu", dtype=_dtype(flags.dtype), api_key=openai.api_key
    )
    if plan.num_samples > 1 and plan.sampling.temperature == 0.0:
        note(
            "at temperature 0 a model's samples of one task are all the same; give it more, or "
            "--k 1"
        )
    folder = flags.target or Path("evals") / f"{family.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    note(f"results: {folder}")
    try:
        with _progress() as progress:
            report = asyncio.run(evaluate(plan, family, teams, folder, settings, progress))
    except KeyboardInterrupt:
        note(f"interrupted; the same command with --out {folder} goes on")
        return EXIT_INTERRUPTED
    except TroupeError as error:
        if not as_json:
            for played in getattr(error, "__notes__", ()):
                out().print(played)
        raise
    if as_json:
        print_json({**report_json(report), "folder": str(folder)})
    else:
        out().print(report_markdown(report))
    return _status(report, folder)


def read_plan(flags: EvalFlags, family: TaskFamily, team: TeamFolder | None = None) -> EvalPlan:
    """The plan of the flags and the team's or the family's defaults; InvalidArgumentError."""
    if flags.split is not None and flags.split not in SPLITS:
        raise InvalidArgumentError(
            f"there is no split '{flags.split}'; {suggest(flags.split, SPLITS)}"
        )
    order = [name.strip() for name in flags.order.split(",")] if flags.order else None
    options: dict[str, Any] = {
        "split": flags.split,
        "first_task": flags.first_task,
        "num_tasks": flags.num_tasks,
        "num_samples": flags.num_samples,
        "seed": flags.seed,
        "sampling": {
            **(sampling_of_team(team.manifest) if team else {}),
            **_without_none(
                temperature=flags.temperature,
                top_p=flags.top_p,
                max_new_tokens=flags.max_new_tokens,
            ),
        },
        "limits": _without_none(episodes_in_flight=flags.in_flight),
    }
    workflow = usual_workflow(family, kind=flags.workflow, order=order, max_turns=flags.max_turns)
    document = {
        "task": {"name": flags.task, "params": task_params(flags.params)},
        "workflow": {
            **workflow.model_dump(),
            **({"params": team.workflow.params} if team else {}),
        },
        **_without_none(**options),
    }
    try:
        return EvalPlan.model_validate(document)
    except ValidationError as error:
        raise SpecInvalidError(issues_of(error, EvalPlan), source="evaluation") from error


def _refuse_unused(flags: EvalFlags, refs: Sequence[PolicyRef]) -> None:
    """Raise InvalidArgumentError for options that no policy of ``--policy`` reads."""
    if flags.base and not any(isinstance(ref, WeightsRef) and ref.adapter for ref in refs):
        raise InvalidArgumentError(
            "--base is the model of adapter folders, and no --policy is one (a run folder and a "
            "team name their own); leave it out, or give the adapter's folder as --policy"
        )
    url = (flags.base_url or "").rstrip("/")
    if url and not any(isinstance(ref, ChatRef) and ref.base_url == url for ref in refs):
        raise InvalidArgumentError(
            f"--base-url is the server of openai:MODEL, and no --policy is one; leave it out, or "
            f"give --policy openai:MODEL or --policy {url}#MODEL"
        )


def task_params(text: str | None) -> dict[str, Any]:
    """The object in ``--params``; raises InvalidArgumentError."""
    if text is None:
        return {}
    try:
        params = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"--params is not JSON ({error}): {text}") from error
    if not isinstance(params, dict):
        raise InvalidArgumentError("--params must be a JSON object, such as '{\"size\": 6}'")
    return params


def _with_params_set(flags: EvalFlags, overrides: Sequence[str]) -> EvalFlags:
    """``flags`` with their parameters changed by each ``task.params.NAME=VALUE``."""
    if not overrides:
        return flags
    document = {"task": {"params": task_params(flags.params)}}
    return replace(flags, params=json.dumps(with_overrides(document, overrides)["task"]["params"]))


def _dtype(text: str | None) -> str:
    dtypes = ("float32", "bfloat16")
    if text is not None and text not in dtypes:
        raise InvalidArgumentError(f"--dtype {text} is not known; {suggest(text, dtypes)}")
    return text or "float32"


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _status(report: Report, folder: Path) -> int:
    if report.num_errors:
        last = next(p.last_error for p in reversed(report.policies) if p.last_error)
        note(
            f"error: {report.num_errors} samples could not be played and are not scored; the last "
            f"one failed with {last}. The same command with --out {folder} tries them again"
        )
        return EXIT_FAILED
    return EXIT_OK


@contextmanager
def _progress() -> Generator[Progress]:
    """A progress bar for each team on a terminal; nothing elsewhere."""
    with Bars(
        *Bars.get_default_columns()[:2],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=err(),
        disable=not err().is_terminal,
    ) as bars:
        tasks: dict[str, Any] = {}

        def show(team: Team, done: int, total: int) -> None:
            if team.label not in tasks:
                tasks[team.label] = bars.add_task(escape(team.label), total=total)
            bars.update(tasks[team.label], completed=done)

        yield show
