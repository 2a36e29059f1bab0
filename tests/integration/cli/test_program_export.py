"""``troupe program export``: where the plan comes from, and what is refused."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.cli.main import run
from troupe_tasks.designed.text import read_program

JUDGE = {"name": "plan_path", "params": {"size": 4}, "agent": "planner"}
OPERATORS = ["answer", "review", "revise", "pick", "vote"]


@pytest.fixture
def document() -> dict[str, Any]:
    params = {"judge": JUDGE, "operators": OPERATORS}
    return {
        "name": "designed",
        "steps": 1,
        "task": {"name": "designed", "params": params},
        "workflow": {"kind": "self_play", "order": ["designer", "executor"], "max_turns": 6},
        "agents": {name: {"policy": "p"} for name in ("designer", "executor")},
        "policies": {"p": {"model": "m"}},
    }


def episode(index: int, plan: str) -> str:
    said = {"text": plan, "is_chosen": True}
    groups = [{"agent": "designer", "candidates": [{"text": "b = none", "is_chosen": False}, said]}]
    return json.dumps({"task_id": f"plan_path/test/{index}", "groups": groups})


def exported(document: dict[str, Any], plan: str, folder: Path) -> str:
    """The text of the program that `troupe program export` makes of the job and the plan."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(document))
    (folder / "plan").write_text(plan)
    target = folder / "team.py"
    where = [str(folder / "spec.yaml"), "--plan", str(folder / "plan"), "--out", str(target)]
    assert run(["program", "export", *where]) == 0
    program = target.read_text()
    compile(program, "team.py", "exec")
    return program


def test_export_when_a_plan_is_given_then_each_line_is_a_node(
    document: dict[str, Any], tmp_path: Path
) -> None:
    program = exported(
        document, "a = answer()\nb = answer()\nc = review(b)\nd = pick(a, b)", tmp_path
    )
    assert 'graph.add_edge(["line_a", "line_b"], "line_d")' in program
    assert "troupe" not in program.lower()
    assert "line_c" not in program  # nothing is made of it


@pytest.mark.parametrize("printed", ["...", "... it is", '"""...', "ANSWER: ..."])
def test_export_when_lines_vote_then_any_form_of_answers_gives_a_program(
    document: dict[str, Any], tmp_path: Path, printed: str
) -> None:
    judge = {"name": "math", "agent": "reasoner"}
    document["task"]["params"] = {"judge": judge, "operators": OPERATORS, "printed": printed}
    program = exported(document, 'a = answer()\nb = answer("\x00")\nc = vote(a, b)', tmp_path)
    begin = program.index("def answer_in(")
    names: dict[str, Any] = {"re": re}
    exec(program[begin : program.index("\n\n\n", begin)], names)
    assert names["answer_in"](printed.replace("...", " 7 ")) == "7"


def test_export_when_a_line_has_a_program_then_it_is_read_from_the_fence_that_says_so(
    document: dict[str, Any], tmp_path: Path
) -> None:
    judge = {"name": "math", "agent": "reasoner"}
    document["task"]["params"] = {"judge": judge, "operators": ["program"]}
    program = exported(document, "a = program()", tmp_path)
    names: dict[str, Any] = {"re": re, "textwrap": textwrap}
    exec(program[program.index("BLOCK = ") : program.index("def printed_by(")], names)
    for text in FENCED:
        assert names["program_in"](text) == "if 1:\n    print(6)\n" == read_program(text)


FENCED = (
    "Plan:\n```text\n6\n```\n```python3\nif 1:\n    print(6)\n```\nIt prints\n```\n6\n```",
    "```\n6\n```\n```\nif 1:\n    print(6)\n```\nIt prints\n```text\n6\n```",
    "```Python\r\nif 1:\r\n    print(6)\r\n```\r\n",
    "1. So:\n   ```py\n   if 1:\n       print(6)\n   ```\n",
)


def test_export_when_a_run_is_given_then_its_newest_plan_of_the_task_is_written(
    document: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(document))
    lines = [episode(3, "a = answer()"), episode(3, 'z = answer("go")'), episode(4, "b = answer()")]
    (tmp_path / "episodes.jsonl").write_text("\n".join([*lines, ""]))
    target = tmp_path / "team.py"
    assert run(["program", "export", str(tmp_path), "--task", "test/3", "--out", str(target)]) == 0
    assert 'z = answer("go")' in target.read_text()
    assert run(["program", "export", str(tmp_path), "--task", "test/5"]) != 0


@pytest.mark.parametrize(
    ("plan", "task", "why"),
    [
        ("a = review(b)", "train/0", "no name of a line above"),
        ("a = answer()", "train", "--task is 'train'"),
        (None, "train/0", "holds no plan"),
    ],
)
def test_export_when_there_is_no_plan_then_says_why(
    document: dict[str, Any],
    tmp_path: Path,
    plan: str | None,
    task: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))
    arguments = [str(tmp_path / "spec.yaml"), "--task", task, "--out", str(tmp_path / "team.py")]
    if plan is not None:
        (tmp_path / "plan").write_text(plan)
        arguments += ["--plan", str(tmp_path / "plan")]
    assert run(["program", "export", *arguments]) != 0
    assert why in capsys.readouterr().err.replace("\n", " ")


def test_export_when_the_task_has_no_plans_then_says_so(
    document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document["task"] = {"name": "plan_path", "params": {"size": 4}}
    document["agents"] = {name: {"policy": "p"} for name in ("tool", "planner")}
    document["workflow"] = {"order": ["tool", "planner"], "max_turns": 2}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "plan").write_text("a = answer()")
    where = [str(tmp_path / "spec.yaml"), "--plan", str(tmp_path / "plan")]
    assert run(["program", "export", *where]) != 0
    assert "task is 'designed'" in capsys.readouterr().err.replace("\n", " ")
