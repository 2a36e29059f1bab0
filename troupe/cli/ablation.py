"""What ``troupe demo`` prints last: the trained team, each of its seats alone, and its base.

A seat alone plays with partners that act at random. Played in this process, as by ``troupe eval``,
on test tasks that no evaluation of the job has seen, where the task has any.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.cli.output import note, out
from troupe.evaluation.evaluation import EvalSettings, evaluate
from troupe.evaluation.plan import EvalPlan
from troupe.evaluation.refs import RefOptions, read_ref
from troupe.evaluation.report import Report, percent
from troupe.evaluation.tables import table
from troupe.evaluation.teams import Team
from troupe.spec import JobSpec
from troupe.tasks.family import TaskFamily
from troupe.tasks.optional import optional_method
from troupe.tasks.registry import load_family


def ablate(spec: JobSpec, run_dir: Path, num_tasks: int, *, quiet: bool) -> dict[str, Any]:
    """Play, and print the table unless ``quiet``; team -> temperature -> [success, low, high].

    The reports are kept below ``run_dir``.
    """
    note(f"who was needed: {num_tasks} test tasks for each team")
    family = load_family(spec.task.name, spec.task.params, pointer="/task/params")
    teams = ablated_teams(spec, run_dir, family)
    size = family.taskset().size("test")
    if first_task(spec, size) < _seen(spec):
        note(f"the job was evaluated on all {size} test tasks; the table is of these too")
    reports: dict[str, Report] = {}
    for temperature in dict.fromkeys((spec.sampling.temperature, 0.0)):
        plan = ablation_plan(spec, temperature, num_tasks, size)
        folder = run_dir / "ablation" / f"temperature-{temperature:g}"
        running = evaluate(plan, family, teams, folder, EvalSettings(), _silent)
        reports[f"temperature {temperature:g}"] = asyncio.run(running)
    rows = [
        [team.label, *(percent(report.policies[index].success) for report in reports.values())]
        for index, team in enumerate(teams)
    ]
    if not quiet:
        out().print(table(["team", *(f"success, {name}" for name in reports)], rows))
    return {team.label: _successes(reports, index) for index, team in enumerate(teams)}


def ablated_teams(spec: JobSpec, run_dir: Path, family: TaskFamily) -> list[Team]:
    """The trained team, each seat of it with random partners, and the base."""
    agents, trained = list(spec.agents), str(run_dir)
    seats = {"trained team": dict.fromkeys(agents, trained)}
    if len(agents) > 1 and optional_method(family, "random_action"):
        seats |= {
            f"its {alone}, partners random": dict.fromkeys(agents, "random") | {alone: trained}
            for alone in agents
        }
    seats["base"] = {name: spec.policies[seat.policy].model for name, seat in spec.agents.items()}
    options = RefOptions()
    return [
        Team(label, {agent: read_ref(text, agent, options) for agent, text in texts.items()})
        for label, texts in seats.items()
    ]


def ablation_plan(spec: JobSpec, temperature: float, num_tasks: int, size: int | None) -> EvalPlan:
    """The job's task, workflow and sampling, on some of the ``size`` test tasks (None: no end)."""
    return EvalPlan(
        task=spec.task,
        workflow=spec.workflow,
        first_task=first_task(spec, size),
        num_tasks=num_tasks,
        seed=spec.seed,
        sampling=spec.sampling.model_copy(update={"temperature": temperature}),
    )


def first_task(spec: JobSpec, size: int | None) -> int:
    """The first of ``size`` test tasks that no evaluation of the job has seen; 0 without any."""
    seen = _seen(spec)
    return seen if size is None or seen < size else 0


def _seen(spec: JobSpec) -> int:
    return spec.eval.num_tasks if spec.eval.split == "test" else 0


def _successes(reports: Mapping[str, Report], index: int) -> dict[str, list[float | None]]:
    found = {name: report.policies[index].success for name, report in reports.items()}
    return {name: [s.mean, s.low, s.high] for name, s in found.items() if s is not None}


def _silent(team: Team, done: int, total: int) -> None:
    """Report nothing: the table follows."""
