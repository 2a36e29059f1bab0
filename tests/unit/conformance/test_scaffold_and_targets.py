"""`troupe new` makes a package that works at once; `troupe check` finds what it is to check."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from troupe.cli.main import run
from troupe.conformance.scaffold import (
    package_files,
    task_files,
    write_task_file,
    write_task_package,
)
from troupe.conformance.target import find_targets, load_target
from troupe.errors import ConflictError, InvalidArgumentError
from troupe.spec import load_spec

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "plugins" / "add_and_double"
HERE = Path(__file__).parent
QUICK = ["--seconds", "0.1", "--num-tasks", "2"]


@pytest.mark.parametrize("name", ["ab", "a23456789_b23456789_c234567890"])
def test_new_task_when_made_then_passes_ruff_whatever_its_name(tmp_path: Path, name: str) -> None:
    folder = write_task_package(name, tmp_path / "made")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_new_task_when_made_then_the_check_command_passes_it_uninstalled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "chain_of_words"
    assert run(["new", "task", "chain_of_words", "--package", "--out", str(folder)]) == 0
    assert f"troupe check {folder}" in capsys.readouterr().out
    assert run(["check", str(folder), *QUICK, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_ok"] is True
    outcomes = {check["name"]: check["outcome"] for check in report["checks"]}
    assert outcomes["other_process"] == "passed"
    assert outcomes["scripted_beats_random"] == "passed"


def test_smallest_task_when_compared_then_is_what_new_makes_in_at_most_60_lines() -> None:
    made = task_files("smallest_task")
    examples = ROOT / "examples"
    assert {path: (examples / path).read_text("utf-8") for path in made} == made
    assert len(made["smallest_task.py"].splitlines()) <= 60
    assert load_spec(examples / "smallest_task.yaml").task.name == "smallest_task.py:SmallestTask"


@pytest.mark.parametrize("name", ["ab", "a23456789_b23456789_c234567890"])
def test_new_task_in_one_file_when_made_then_passes_ruff_whatever_its_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "ruff.toml").write_text("line-length = 100\n[lint]\nextend-select = ['I', 'RUF']\n")
    write_task_file(name, tmp_path)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_new_task_in_one_file_when_made_then_check_and_dryrun_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["new", "task", "chain_of_numbers", "--out", str(tmp_path), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert files == [str(tmp_path / f"chain_of_numbers.{end}") for end in ("py", "yaml")]
    task = f"{files[0]}:ChainOfNumbers"
    assert run(["check", task, *QUICK, "--json"]) == 0
    outcomes = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert "warned" not in {check["outcome"] for check in outcomes.values()}
    skipped = {name for name, check in outcomes.items() if check["outcome"] == "skipped"}
    assert skipped == {"vocabulary", "scripted_beats_random", "hidden"}
    assert "no vocabulary()" in outcomes["vocabulary"]["evidence"][0]
    assert "no random_action(state, agent, rng)" in outcomes["scripted_beats_random"]["evidence"][0]
    assert run(["dryrun", task, "--set", "reward=examples.my_rewards:brevity", "--json"]) == 0
    [group, *_] = json.loads(capsys.readouterr().out)[0]["groups"]
    assert group["agent"] == "agent"
    assert run(["new", "task", "chain_of_numbers", "--out", str(tmp_path)]) == 2


def test_example_plugin_when_compared_then_is_what_new_makes() -> None:
    made = package_files("add_and_double")
    there = {
        str(path.relative_to(EXAMPLE)): path.read_text("utf-8")
        for path in EXAMPLE.rglob("*")
        if path.is_file() and not any(map(_is_left_behind, path.relative_to(EXAMPLE).parts))
    }
    assert there == made


def test_example_plugin_when_its_spec_is_read_then_is_valid() -> None:
    assert load_spec(EXAMPLE / "train.yaml").task.name == "add_and_double"


@pytest.mark.parametrize(
    "name",
    ["", "Word", "word-chain", "1word", "class", "word_", "x" * 31, "plan_path", "troupe", "json",
     "test"],
)  # fmt: skip
def test_new_task_when_the_name_cannot_be_one_then_is_bad_input(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        write_task_package(name, tmp_path / "made")
    assert run(["new", "task", name, "--out", str(tmp_path / "made")]) == 2


def test_new_task_when_the_folder_is_in_use_then_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConflictError):
        write_task_package("word_chain", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_check_when_a_promise_is_broken_then_ends_with_status_1_and_says_which(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = f"{HERE / 'broken_families.py'}:Farmable"
    assert run(["check", file, *QUICK]) == 1
    said = capsys.readouterr()
    assert "failed   return_bound" in said.out
    assert "-> pay each gain once" in said.out
    assert "failed" in said.err


def test_check_when_one_check_is_asked_for_then_runs_it_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["check", "plan_path", "--only", "declared", "--params", '{"size": 6}']) == 0
    assert capsys.readouterr().out.splitlines() == [
        "passed   declared               agents tool, planner; bound 2.0; local terms declared"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_such_task"], "no task is called"),
        (["no_such_module:Task"], "cannot be imported"),
        (["json:dumps"], "is no task: it is a function"),
        (["plan_path", "--params", "{"], "not JSON"),
        (["plan_path", "--params", "[1]"], "object"),
        (["plan_path", "--params", '{"sise": 6}'], "size"),
        (["plan_path", "--only", "no_such_check"], "no check"),
        (["missing.py:Task"], "missing.py"),
        (["missing.yaml"], "missing.yaml"),
        ([str(HERE)], "pyproject.toml"),
    ],
)
def test_check_when_the_input_is_bad_then_ends_with_status_2_and_says_what(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_find_targets_when_given_a_spec_then_takes_its_task_and_parameters() -> None:
    [found] = find_targets(str(ROOT / "examples" / "plan_path_6x6.yaml"), {"max_actions": 3})
    assert found.name == "plan_path"
    assert found.params == {"size": 6, "max_actions": 3}


def test_find_targets_when_given_a_package_folder_then_takes_every_entry_point() -> None:
    [found] = find_targets(str(EXAMPLE), {"max_target": 50})
    assert found.name == "add_and_double.family:AddAndDouble"
    assert found.import_paths == (str(EXAMPLE / "src"),)
    assert load_target(found).name == "add_and_double"


def test_find_targets_when_a_package_names_no_task_then_says_which_lines_to_add(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=r"troupe\.tasks"):
        find_targets(str(tmp_path), {})


def _is_left_behind(part: str) -> bool:
    """A folder that tools make, not `troupe new`."""
    return part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info")
