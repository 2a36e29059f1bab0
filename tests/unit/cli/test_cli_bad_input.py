"""What a person gets wrong: one paragraph on stderr and the documented exit status."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from troupe.cli.main import run
from troupe.spec import load_spec

EXAMPLE = Path(__file__).parents[3] / "examples" / "plan_path_6x6.yaml"


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REST_URL", "RUNS_DIR", "REDIS_URL", "REST_PORT"):
        monkeypatch.delenv(f"TROUPE_{name}", raising=False)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    document = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["stepz=3"], "/stepz: unknown field; did you mean 'steps'?"),
        (["algorithm.group_size=1"], "/algorithm/group_size"),
        (["agents.tool.policy=shraed"], "did you mean 'shared'?"),
        (["task.name=plan_paht"], "plan_path"),
        (["steps"], "is not key=value"),
        (["workflow.order.7=tool"], "is not an index of a list"),
        (["name.inner=1"], "a plain value has no field"),
    ],
)
def test_validate_when_a_field_is_wrong_then_says_where_and_exits_2(
    spec: Path, overrides: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [part for override in overrides for part in ("--set", override)]
    assert run(["validate", str(spec), *flags]) == 2
    seen = capsys.readouterr()
    assert said in seen.err
    assert seen.out == ""


def test_validate_when_the_spec_is_right_then_exits_0(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_hub = ("--set", "policies.shared.model=acme/base")
    assert run(["validate", str(spec), "--set", "steps=3", *of_hub]) == 0
    seen = capsys.readouterr()
    assert "3 steps" in seen.out
    assert "warning" not in seen.err


def test_validate_when_a_model_folder_is_missing_then_warns_how_to_make_it(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", str(spec), "--set", "policies.shared.model=models/dors"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: /policies/shared/model: there is no model folder 'models/dors'" in said
    assert "`troupe model tiny " in said


def test_validate_when_no_agent_has_a_policy_then_warns_and_exits_0(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(spec.read_text("utf-8"))
    document["policies"]["spare"] = document["policies"]["shared"]
    spec.write_text(yaml.safe_dump(document), "utf-8")
    assert run(["validate", str(spec), "--json"]) == 0
    seen = capsys.readouterr()
    assert list(json.loads(seen.out)["policies"]) == ["shared"]
    assert "warning: /policies/spare: no agent samples from this policy" in seen.err


def test_validate_when_there_is_no_file_then_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "nope.yaml"]) == 2
    assert "nope.yaml" in capsys.readouterr().err


def test_train_when_the_model_folder_is_missing_then_says_how_to_make_one(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(spec), "--set", "policies.shared.model=models/none"]) == 2
    said = capsys.readouterr().err
    assert "/policies/shared/model" in said
    assert "troupe model tiny --task plan_path --size 6" in said
    assert not Path("runs").exists()


def test_train_when_neither_spec_nor_resume_is_given_then_exits_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["train"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_train_when_resume_names_no_run_folder_then_exits_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["train", "--resume", "runs/none-1"]) == 2
    assert "not a run folder" in capsys.readouterr().err


def make_run(spec: Path, here: Path) -> None:
    """The folder of job demo-1, as far as its spec."""
    folder = here / "runs" / "demo-1"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(load_spec(spec).model_dump_json())


def test_train_when_a_resumed_job_would_be_another_then_says_where_before_anything_starts(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(spec, tmp_path)
    assert run(["train", "--resume", "runs/demo-1", "--set", "algorithm.group_size=4"]) == 2
    assert "resumed with another /algorithm/group_size;" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["demo-1"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("class Doors: pass", "a task in it is called 'doors.py:Doors':"),
        ("class A: pass\nclass B: pass", "'doors.py:CLASS' (its classes: A, B):"),
        ("class", "'doors.py:CLASS':"),
    ],
)
def test_dryrun_when_a_tasks_class_is_left_out_then_says_how_to_name_it(
    tmp_path: Path, code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "doors.py").write_text(code)
    assert run(["dryrun", "doors.py"]) == 2
    seen = capsys.readouterr().err
    assert "this is Python, and no job spec" in seen
    assert said in seen


def test_export_when_a_policy_is_misspelt_then_says_so_at_once(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(spec, tmp_path)
    assert run(["export", "demo-1", "--policy", "shraed"]) == 2
    assert "no policy 'shraed'; did you mean 'shared'?" in capsys.readouterr().err


@pytest.mark.timeout(40)
@pytest.mark.parametrize("command", [["watch", "demo-1"], ["logs", "demo-1"]])
def test_watch_when_no_platform_is_up_then_says_so_and_does_not_wait_for_one(
    command: list[str], free_port: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "No router answers" in capsys.readouterr().err


def test_up_when_a_port_is_in_use_then_names_port_and_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["up", "--rest-port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"Port {port}" in said
    assert "--rest-port or TROUPE_REST_PORT" in said
    assert not Path("runs/.troupe").exists()


def test_up_when_one_port_is_given_twice_then_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--rest-port", "28123", "--grpc-port", "28123"]) == 2
    assert "given to both" in capsys.readouterr().err


def test_up_when_the_runs_folder_cannot_be_written_then_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["up", "--runs-dir", str(tmp_path / "file")]) == 2
    assert "--runs-dir or TROUPE_RUNS_DIR" in capsys.readouterr().err


def test_up_when_redis_is_unreachable_then_exits_1_and_starts_nothing(
    free_port, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = [free_port() for _ in range(4)]
    flags = ["--rest-port", str(ports[0]), "--grpc-port", str(ports[1])]
    flags += ["--admin-port", str(ports[2]), "--redis-url", f"redis://127.0.0.1:{ports[3]}/0"]
    assert run(["up", *flags]) == 1
    assert f"127.0.0.1:{ports[3]}" in capsys.readouterr().err
    assert not Path("runs/.troupe").exists()


def test_jobs_when_no_router_answers_then_exits_1(
    free_port, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["jobs", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "troupe up" in capsys.readouterr().err


def test_settings_when_a_variable_is_not_valid_then_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TROUPE_REST_PORT", "many")
    assert run(["jobs"]) == 2
    assert "TROUPE_REST_PORT" in capsys.readouterr().err


def test_status_when_nothing_runs_then_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 1
    assert "troupe up" in capsys.readouterr().out


def test_model_tiny_when_the_folder_is_not_its_own_then_leaves_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it", encoding="utf-8")
    assert run(["model", "tiny", "--out", str(tmp_path / "mine")]) == 2
    assert (tmp_path / "mine" / "thesis.tex").read_text("utf-8") == "all of it"
    assert "left alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--rows", "rows.jsonl", "--task", "plan_path"], "--rows stands for a task"),
        (["--agents", "{}"], "--agents belongs to --rows"),
    ],
)
def test_model_tiny_when_rows_and_a_task_are_mixed_then_exits_2(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["model", "tiny", "--out", "m", *flags]) == 2
    assert said in capsys.readouterr().err


def test_command_when_it_is_unknown_then_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trian"]) == 2
    assert "trian" in capsys.readouterr().err


def test_command_when_code_ends_it_with_a_text_then_says_it_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "quits.py").write_text(
        "import sys, troupe\n\nclass Quits(troupe.SimpleTask):\n"
        "    def draw(self, rng):\n        sys.exit('bad data')\n"
    )
    assert run(["audit", "quits.py:Quits"]) == 1
    assert capsys.readouterr().err == "bad data\n"
    assert run(["check", "quits.py:Quits"]) == 2
    assert "SystemExit: bad data (at " in capsys.readouterr().err


def test_audit_when_the_task_is_unknown_then_says_so_and_its_own_defaults_are_valid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["audit", "plan_paht"]) == 2
    said = capsys.readouterr().err
    assert "plan_path" in said
    assert "valid integer" not in said


@pytest.mark.parametrize(
    "command",
    [
        ["keys", "add", "me", "--file", "/dev/null/k.yaml"],
        ["new", "task", "mine", "--out", "/dev/null/x"],
        ["data", "prepare", "gsm8k", "--source", "in", "--split", "test", "--out", "/dev/null/d"],
    ],
)
def test_command_when_a_path_cannot_be_written_then_says_which_and_exits_2(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in").mkdir()
    row = {"question": "1 + 1?", "answer": "#### 2"}
    (Path("in") / "test.jsonl").write_text(json.dumps(row) + "\n")
    assert run(command) == 2
    seen = capsys.readouterr().err
    assert seen.startswith("error: /dev/null")
    assert "Traceback" not in seen


def test_train_when_a_resumed_run_is_to_lie_elsewhere_then_says_where_it_stays(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("runs/demo-1")
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(yaml.safe_load(spec.read_text())))
    assert run(["train", "--resume", str(folder), "--runs-dir", "other"]) == 2
    assert "a resumed run stays where it is" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "subcommand"),
    [
        (["--url", "http://127.0.0.1:1"], ["prune", "--keep", "1"]),
        (["--runs-dir", "elsewhere"], ["import"]),
        (["--limit", "20"], ["folders"]),
        (["--json"], ["pin", "job-1"]),
    ],
)
def test_jobs_when_an_option_stands_before_a_subcommand_then_refuses_it(
    options: list[str], subcommand: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["jobs", *options, *subcommand]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"put {options[0]} after {subcommand[0]}" in said


def test_data_prepare_when_a_revision_of_a_local_copy_is_named_then_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n', "utf-8")
    flags = ["--source", "g.jsonl", "--split", "train", "--revision", "main"]
    assert run(["data", "prepare", "gsm8k", *flags]) == 2
    assert "leave --revision out" in " ".join(capsys.readouterr().err.split())
    assert run(["data", "prepare", "gsm8k", *flags[:-2]]) == 0
