"""`troupe eval --team` plays the team's own task and workflow, as its run did."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from troupe.cli import eval_run
from troupe.cli.main import run
from troupe.errors import UnavailableError
from troupe.evaluation.plan import EvalPlan

TASK_CODE = "from troupe_tasks.plan_path import PlanPath\n"
WORKFLOW_CODE = "from troupe.workflows.turn_based import TurnBased\n"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[EvalPlan]:
    """The plans that the command would have played."""
    seen: list[EvalPlan] = []

    async def evaluate(plan: EvalPlan, *_: object) -> None:
        seen.append(plan)
        raise UnavailableError("nothing is played here")

    monkeypatch.setattr(eval_run, "evaluate", evaluate)
    return seen


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return write_run(tmp_path / "runs" / "pair-1")


def change(team: Path, **parts: Any) -> None:
    document = json.loads((team / "spec.json").read_text())
    for name, part in parts.items():
        document[name] |= part
    (team / "spec.json").write_text(json.dumps(document))


def test_eval_when_a_parameter_of_a_team_is_set_then_its_others_stay(
    team: Path, plans: list[EvalPlan]
) -> None:
    change(team, task={"params": {"size": 4, "max_actions": 6}})
    flags = ["eval", "--team", str(team), "--n", "1"]
    run([*flags, "--set", "task.params.size=5"])
    run([*flags, "--params", '{"max_actions": 7}', "--set", "task.params.size=5"])
    assert [plan.task.params for plan in plans] == [
        {"size": 5, "max_actions": 6},
        {"size": 5, "max_actions": 7},
    ]


def test_eval_when_a_run_names_task_and_workflow_by_absolute_paths_then_they_are_those_of_the_run(
    team: Path, plans: list[EvalPlan]
) -> None:
    code = team.parent / "code"
    code.mkdir()
    (code / "my_task.py").write_text(TASK_CODE)
    (code / "my_workflow.py").write_text(WORKFLOW_CODE)
    task, workflow = f"{code / 'my_task.py'}:PlanPath", f"{code / 'my_workflow.py'}:TurnBased"
    change(team, task={"name": task}, workflow={"kind": workflow})
    assert run(["eval", "--team", str(team), "--n", "1"]) == 1
    assert (plans[0].task.name, plans[0].workflow.kind) == (task, workflow)


def test_eval_when_a_run_names_data_by_an_absolute_path_then_no_other_folder_is_played(
    team: Path, plans: list[EvalPlan]
) -> None:
    data = team.parent / "data" / "sums"
    for folder in (data, Path("sums")):
        folder.mkdir(parents=True)
        row = {"id": "a", "problem": "1+1", "answer": "2", "source": "x"}
        (folder / "test.jsonl").write_text(json.dumps(row) + "\n")
    agents = {"tool": {"policy": "tool"}, "reasoner": {"policy": "planner"}}
    order = {"order": ["tool", "reasoner"]}
    document = json.loads((team / "spec.json").read_text()) | {"agents": agents}
    (team / "spec.json").write_text(json.dumps(document))
    change(team, task={"name": "math", "params": {"data": str(data)}}, workflow=order)
    run(["eval", "--team", str(team), "--n", "1"])
    assert plans[0].task.params == {"data": str(data)}
