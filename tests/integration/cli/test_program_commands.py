"""``troupe program run``, ``probe`` and ``check`` on real programs, good ones and broken ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.cli.main import run

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "tests" / "integration" / "programs" / "teams" / "wire_client.py"
TEAM = """import datetime
from wire_client import say


def pair(task):
    said = say("You are the solver.", task["question"], temperature=0.7)
    return say("You are the verifier.", said)


def clock(task):
    said = say("You are the solver.", task["question"])
    return say("You are the verifier.", f"At {datetime.datetime.now().isoformat()}: {said}")


def strange(task):
    return say("You are a stranger.", task["question"])


def raises(task):
    said = say("You are the solver.", task["question"])
    raise ValueError(f"cannot parse {said!r}")


def misspelt(task):
    return task["questoin"]


def message(task):
    class AIMessage:
        content = say("You are the solver.", task["question"])

    return {"messages": [AIMessage()]}


def thrice(task):
    return [say("You are the solver.", f"{n}: {task['question']}") for n in range(3)][-1]
"""
LINE_OF_RAISES, LINE_OF_MISSPELT = 21, 25
Spec = Callable[..., str]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Writes the job spec of a program of ``team.py``; its path."""
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    (tmp_path / "wire_client.py").write_text(CLIENT.read_text())

    def write(program: str, **task: Any) -> str:
        params = {
            "program": program,
            "folder": str(tmp_path),
            "warm": False,
            "judge": {"name": "plan_path", "params": {"size": 4}, "agent": "planner"},
            "seats": {
                "solver": {"system": "You are the solver"},
                "verifier": {"system": "You are the verifier", "samples": ["APPROVE"]},
            },
        }
        document = {
            "name": "looked-at",
            "steps": 1,
            "tasks_per_step": 1,
            "task": {"name": "program", "params": params, **task},
            "workflow": {"kind": "self_play", "order": ["solver", "verifier"]},
            "agents": {"solver": {"policy": "p"}, "verifier": {"policy": "p"}},
            "policies": {"p": {"model": "m"}},
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


def test_probe_when_given_answers_then_prints_each_call_with_its_seat(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec("team:pair")
    assert run(["program", "probe", path, "--answer", "one", "--answer", "two"]) == 0
    said = capsys.readouterr().out
    assert "call 1: solver" in said
    assert "overridden ['temperature']" in said
    assert "call 2: verifier" in said
    assert "  user: one" in said
    assert "end: it returned 'two'" in said
    assert run(["program", "probe", path, "--json"]) == 0
    calls = json.loads(capsys.readouterr().out)["calls"]
    assert [(call["agent"], call["answer"]) for call in calls] == [
        ("solver", "ok"),
        ("verifier", "ok"),
    ]


def test_probe_when_no_seat_fits_then_shows_the_call_and_the_rules(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["program", "probe", spec("team:strange")]) == 0
    said = capsys.readouterr().out
    assert "call 1: no seat: no agent claims a call" in said
    assert "system 'You are the solver'" in said


def test_run_when_the_program_ends_then_prints_answers_pay_and_end(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec("team:pair")
    assert run(["program", "run", path, "--task", "3"]) == 0
    said = capsys.readouterr().out
    assert "answers APPROVE\n  paid team 0" in said
    assert "'program_end': 'answered', 'answer': 'APPROVE'" in said
    assert run(["program", "run", path, "--json"]) == 0
    assert [step["agent"] for step in json.loads(capsys.readouterr().out)] == ["solver", "verifier"]


def test_run_when_the_program_raises_then_names_file_and_line(
    spec: Spec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["program", "run", spec("team:raises")]) == 0
    said = capsys.readouterr().out
    assert "'program_end': 'program_error'" in said
    assert f'File "{tmp_path}/team.py", line {LINE_OF_RAISES}, in raises' in said


def test_run_when_the_program_returns_an_object_then_asks_for_the_answers_text(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["program", "run", spec("team:message")]) == 0
    said = capsys.readouterr().out
    assert "'program_end': 'program_error'" in said
    assert "returned a dict that JSON can't hold (Object of type AIMessage" in said
    assert "return the answer's text" in said


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("program", "where", "what"),
    [
        ("team:misspelt", f'team.py", line {LINE_OF_MISSPELT}, in misspelt', "KeyError"),
        ("broken:run", 'broken.py", line 1, in <module>', "No module named 'no_such_package'"),
        ("team:nope", "", "module 'team' has no attribute 'nope'"),
    ],
)
def test_program_when_it_breaks_before_it_asks_then_names_its_own_line_alone(
    spec: Spec,
    capsys: pytest.CaptureFixture[str],
    command: str,
    program: str,
    where: str,
    what: str,
) -> None:
    assert run(["program", command, spec(program)]) == {"run": 2, "check": 1}[command]
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert where in said
    assert what in said
    assert "host.py" not in said
    assert "importlib" not in said


def test_check_when_the_program_repeats_then_is_fine_and_says_how_runs_ended(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["program", "check", spec("team:raises"), "--n", "2"]) == 0
    said = capsys.readouterr().err
    assert "2 tasks run twice, 0 problems; ended: program_error 2" in said
    assert "the first that failed: task 0: ValueError: cannot parse" in said
    assert run(["program", "check", spec("team:pair"), "--n", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "num_tasks": 1,
        "problems": [],
        "ends": {"answered": 1},
    }


@pytest.mark.parametrize(("max_turns", "is_cut_off"), [(2, True), (3, False)])
@pytest.mark.parametrize("command", ["run", "check"])
def test_program_when_a_job_would_end_before_it_then_warns(
    spec: Spec,
    capsys: pytest.CaptureFixture[str],
    command: str,
    max_turns: int,
    *,
    is_cut_off: bool,
) -> None:
    path = spec("team:thrice")
    document = yaml.safe_load(Path(path).read_text())
    document["workflow"]["max_turns"] = max_turns
    Path(path).write_text(yaml.safe_dump(document))
    assert run(["program", command, path]) == 0
    warning = f"solver was asked 3 times, and workflow.max_turns is {max_turns}"
    assert (warning in capsys.readouterr().err) is is_cut_off


def test_check_when_a_clock_is_in_a_prompt_then_names_call_and_difference(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["program", "check", spec("team:clock"), "--n", "1"]) == 1
    said = capsys.readouterr().out
    assert "task 0, call 2: agent verifier saw 'user: At 20" in said
    assert "mask it by `ignore`" in said


def test_program_when_the_task_is_another_then_says_so(
    spec: Spec, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec("team:pair", name="plan_path", params={"size": 4})
    assert run(["program", "probe", path]) == 2
    assert "runs no agent program" in capsys.readouterr().err
