"""What a person gets wrong with `troupe eval`: one paragraph on stderr and exit status 2 or 1."""

import json
from pathlib import Path

import pytest

from troupe.cli.main import run
from troupe.training.task import TASK_NAME

SCRIPTED = ["--task", "plan_path", "--policy", "scripted"]


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TROUPE_OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "name what to evaluate"),
        (["--task", "plan_path"], "name what to evaluate"),
        (["--policy", "scripted"], "name what to evaluate"),
        (["--task", "plan_paht", "--policy", "scripted"], "did you mean 'plan_path'?"),
        ([*SCRIPTED, "--params", "{size: 6}"], "--params is not JSON"),
        ([*SCRIPTED, "--params", "[6]"], "must be a JSON object"),
        ([*SCRIPTED, "--params", '{"sise": 6}'], "did you mean 'size'?"),
        ([*SCRIPTED, "--split", "tset"], "did you mean 'test'?"),
        ([*SCRIPTED, "--agents", "tool,planer"], "did you mean 'planner'?"),
        ([*SCRIPTED, "--workflow", "turn_base"], "did you mean 'turn_based'?"),
        ([*SCRIPTED, "--top-p", "1.5"], "/sampling/top_p"),
        ([*SCRIPTED, "--base", "nope"], "no --policy is one"),
        ([*SCRIPTED, "--base-url", "http://h/v1"], "give --policy openai:MODEL"),
        ([*SCRIPTED, "--policy", "http://h/v1#m", "--base-url", "http://i/v1"], "--base-url is"),
        ([*SCRIPTED, "--max-turns", "1001"], "/max_turns"),
        ([*SCRIPTED, "--agents", "tool,tool"], "an agent acts once in a turn"),
        ([*SCRIPTED, "--first-task", f"{2**63}"], "/first_task"),
        (["--task", "plan_path", "--policy", "http://127.0.0.1:999999/v1#m"], "is not a URL"),
        (["--task", "plan_path", "--policy", "openai:m", "--base-url", "http://[x"], "not a URL"),
        ([*SCRIPTED, "--dtype", "float16"], "--dtype float16 is not known"),
        ([*SCRIPTED, "--set", "seed=1"], "--set task.params.NAME=VALUE"),
        ([*SCRIPTED, "--set", "task.params.sise=6"], "did you mean 'size'?"),
        ([*SCRIPTED, "--redis-url", "redis://x"], "--redis-url belongs to"),
        ([*SCRIPTED, "--policy", "scripted"], "two teams are called scripted"),
        ([*SCRIPTED, "--ports", "auto"], "--ports belongs to"),
        ([*SCRIPTED, "--runs-dir", "elsewhere"], "--runs-dir belongs to"),
        (["--task", "plan_path", "--policy", "openai:m"], "--base-url"),
        (["--task", "plan_path", "--policy", "models/none"], "there is no policy"),
        (["--task", "plan_path", "--policy", "toool=random,planner=random"], "'tool'?"),
        (["--task", "plan_path", "--policy", "planner=random"], "leaves tool without"),
        (["runs/x", "--task", "plan_path"], "cannot be combined with runs/x"),
        (["runs/x", "--k", "2"], "--k cannot be combined"),
    ],
)
def test_eval_when_a_flag_is_wrong_then_says_what_to_do_and_exits_2(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", *flags]) == 2
    seen = capsys.readouterr()
    assert said in seen.err
    assert seen.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--k", "--n", "--max-turns", "--in-flight"])
def test_eval_when_a_count_is_below_1_then_exits_2(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", *SCRIPTED, flag, "0"]) == 2
    assert "equal to 1" in capsys.readouterr().err


def test_eval_when_nobody_listens_at_the_url_then_exits_1_and_names_it(
    free_port, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    assert run(["eval", "--task", "plan_path", "--policy", f"{url}#m", "--out", "e"]) == 1
    assert f"no server answers at {url}" in capsys.readouterr().err


def test_eval_when_resumed_with_other_settings_then_exits_2_and_names_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["eval", *SCRIPTED, "--n", "1", "--out", "e"]
    assert run([*flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["num_played"] == 1
    assert run([*flags, "--seed", "3"]) == 2
    assert "seed was 0 and is 3" in capsys.readouterr().err


def test_eval_when_the_first_task_is_beyond_the_split_then_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--task", f"{__name__}:ThreeTasks", "--policy", "scripted", "--out", "e"]
    assert run(["eval", *flags, "--first-task", "3"]) == 2
    assert "has 3 tasks" in capsys.readouterr().err
    assert run(["eval", *flags, "--n", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["num_samples"] == 3


class _Three:
    def size(self, split):
        return 3

    def task(self, split, index):
        from troupe_tasks.plan_path.family import PlanPath, PlanPathParams

        return PlanPath(PlanPathParams()).taskset().task(split, index)


def _three_tasks():
    from troupe_tasks.plan_path.family import PlanPath

    class ThreeTasks(PlanPath):
        """Plan-Path with a split that ends."""

        def taskset(self):
            return _Three()

    return ThreeTasks


ThreeTasks = _three_tasks()


def test_eval_when_the_reward_was_in_a_python_process_then_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path("runs/notebook-1")
    folder.mkdir(parents=True)
    task = {"name": TASK_NAME, "params": {}}
    policies = {"p": {"model": "m", "train": {"kind": "lora"}}}
    spec = {
        "name": "n",
        "steps": 1,
        "task": task,
        "agents": {"a": {"policy": "p"}},
        "policies": policies,
    }
    (folder / "spec.json").write_text(json.dumps({**spec, "workflow": {"order": ["a"]}}), "utf-8")
    assert run(["eval", str(folder)]) == 2
    assert "troupe.open_run('runs/notebook-1')" in " ".join(capsys.readouterr().err.split())
