"""`troupe eval --task --policy` as people run it: scripted seats, served weights, a chat server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chat_server import ChatServer, serving
from safetensors.torch import load_file, save_file

from benchmarks.random_model import save_random_model
from troupe.cli.main import run
from troupe.evaluation.folder import EPISODES

TASK = ["eval", "--task", "plan_path", "--params", '{"size": 6, "max_actions": 4}']


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"TROUPE_OPENAI_{name}", raising=False)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / EPISODES).read_text("utf-8").splitlines()]


def outcomes(folder: Path) -> dict[tuple, tuple]:
    """What must not depend on when or how often the command ran."""
    found = {}
    for line in lines(folder):
        texts = [c["text"] for g in line["groups"] for c in g["candidates"]]
        key = (line["policy"], line["task_index"], line["sample"])
        found[key] = (line["is_success"], line["num_turns"], line["team_return"], texts)
    return found


def report(capsys: pytest.CaptureFixture[str], *flags: str) -> dict:
    assert run([*TASK, *flags, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_eval_when_scripted_and_random_then_one_solves_all_and_the_table_compares_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--policy", "scripted", "--policy", "random", "--n", "40", "--max-turns", "4"]
    found = report(capsys, *flags, "--out", "e")
    scripted, dice = found["policies"]
    assert scripted["success"]["mean"] == 1.0
    assert scripted["success"]["low"] == pytest.approx(0.91238, abs=1e-4)
    assert scripted["failures"] == {}
    assert 0.0 <= dice["success"]["mean"] < 0.6
    assert sum(dice["failures"].values()) == 40 * (1 - dice["success"]["mean"])
    [comparison] = found["comparisons"]
    difference = dice["success"]["mean"] - 1.0
    assert comparison["difference"]["mean"] == pytest.approx(difference, abs=1e-6)
    written = (tmp_path / "e" / "report.md").read_text("utf-8")
    assert "| scripted | 100.0 % (91.2 to 100.0) |" in written
    assert len(lines(tmp_path / "e")) == 80


def test_eval_when_a_conversation_is_read_then_shows_prompt_answer_parse_pay_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(capsys, "--policy", "tool=random,planner=scripted", "--n", "2", "--out", "e")
    line = lines(tmp_path / "e")[0]
    group = next(g for g in line["groups"] if g["agent"] == "planner")
    [candidate] = group["candidates"]
    assert group["prompt"][-1]["content"].endswith("planner")
    assert (
        candidate["info"]["moves"].lower()
        == candidate["text"].split(" ", 1)[1].replace(" ", "").lower()
    )
    assert group["generate_s"] >= 0
    shown = (tmp_path / "e" / "transcripts" / "tool-random-planner-scripted.md").read_text("utf-8")
    assert group["prompt"][-1]["content"] in shown
    assert candidate["text"] in shown
    assert "judged in" in shown


def test_eval_when_killed_in_the_middle_then_the_same_command_ends_with_the_same_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--policy", "random", "--n", "60", "--k", "2", "--max-turns", "2"]
    command = [sys.executable, "-m", "troupe.cli", *TASK, *flags, "--out", "killed"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path = tmp_path / "killed" / EPISODES
    deadline = time.monotonic() + 60
    while not (path.is_file() and path.stat().st_size > 8_000):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    before = path.read_bytes()
    assert 0 < before.count(b"\n") < 120
    path.write_bytes(before + b'{"policy":"random","task_in')
    resumed = report(capsys, *flags, "--out", "killed")
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    whole = report(capsys, *flags, "--out", "whole")
    assert outcomes(tmp_path / "killed") == outcomes(tmp_path / "whole")
    assert len(lines(tmp_path / "killed")) == 120
    for found in (resumed, whole):
        for policy in found["policies"]:
            policy.pop("wall_s_mean")
        found.pop("folder")
    assert resumed == whole


def test_eval_when_continued_with_more_tasks_then_plays_only_those(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(capsys, "--policy", "random", "--n", "4", "--out", "e")
    first = (tmp_path / "e" / EPISODES).read_bytes()
    found = report(capsys, "--policy", "random", "--n", "6", "--k", "2", "--out", "e")
    assert (tmp_path / "e" / EPISODES).read_bytes().startswith(first)
    assert found["policies"][0]["num_samples"] == 12
    assert len(lines(tmp_path / "e")) == 12
    fewer = report(capsys, "--policy", "random", "--n", "3", "--out", "e")
    assert fewer["policies"][0]["num_samples"] == 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("random") / "model")


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA large enough to change every answer, as peft writes it."""
    import torch

    folder = tmp_path_factory.mktemp("adapter") / "a"
    folder.mkdir()
    torch.manual_seed(1)
    name = "model.layers.0.self_attn.q_proj"
    shape = load_file(model / "model.safetensors")[f"{name}.weight"].shape
    pair = {
        f"base_model.model.{name}.lora_A.weight": torch.randn(2, shape[1]) * 3,
        f"base_model.model.{name}.lora_B.weight": torch.randn(shape[0], 2) * 3,
    }
    save_file(pair, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": str(model)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_eval_when_weights_are_given_then_an_engine_serves_them_and_the_adapter_matters(
    model: Path, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--n", "3", "--k", "2", "--max-turns", "1", "--max-new-tokens", "6"]
    found = report(capsys, "--policy", str(model), "--policy", str(adapter), *flags, "--out", "e")
    bare, adapted = found["policies"]
    assert bare["seats"]["tool"] == str(model)
    assert adapted["seats"]["tool"] == f"{adapter} on {model}"
    assert bare["tokens_total"] > 0
    assert bare["prompt_tokens_mean"] > 0
    assert bare["pass_at_k"].keys() == {"1", "2"}
    played = outcomes(tmp_path / "e")
    texts = {key: value[3] for key, value in played.items()}
    assert texts[str(model), 0, 0] != texts[str(adapter), 0, 0]
    assert texts[str(model), 0, 0] != texts[str(model), 0, 1]
    report(capsys, "--policy", str(model), *flags, "--out", "again")
    again = outcomes(tmp_path / "again")
    assert again == {key: value for key, value in played.items() if key[0] == str(model)}


def test_eval_when_the_policy_is_a_chat_server_then_plays_over_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_OPENAI_API_KEY", "s3cret-key")
    with serving(ChatServer(key="s3cret-key", failures=[(503, {}), (429, {})])) as server:
        flags = ["--n", "6", "--max-turns", "3", "--base-url", server.url]
        policies = [
            "--policy",
            f"{server.url}#rule",
            "--policy",
            "tool=scripted,planner=openai:rule",
        ]
        found = report(capsys, *flags, *policies, "--out", "e")
    alone, mixed = found["policies"]
    assert (alone["num_played"], mixed["num_played"]) == (6, 6)
    assert alone["prompt_tokens_mean"] == 30 * sum(
        a["actions_mean"] for a in alone["agents"].values()
    )
    assert mixed["seats"] == {"planner": f"{server.url}#rule", "tool": "scripted"}
    for path in (tmp_path / "e").rglob("*"):
        if path.is_file():
            assert "s3cret-key" not in path.read_text("utf-8")


def test_eval_when_the_server_fails_for_a_sample_then_it_is_an_error_and_tried_again_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--n", "2", "--max-turns", "1", "--in-flight", "1", "--out", "e"]
    with serving(ChatServer(failures=[(400, {})])) as server:
        policy = ["--policy", f"planner={server.url}#rule,tool=scripted"]
        assert run([*TASK, *flags, *policy, "--json"]) == 1
        seen = capsys.readouterr()
        [summary] = json.loads(seen.out)["policies"]
        assert (summary["num_played"], summary["num_errors"]) == (1, 1)
        assert summary["failures"]["error"] == 1
        assert summary["success"]["num_samples"] == 1
        assert "tries them again" in seen.err
        found = report(capsys, *flags, *policy)
    assert found["policies"][0]["num_played"] == 2
    assert len(lines(tmp_path / "e")) == 3


def test_eval_when_every_sample_fails_then_gives_up_soon_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(ChatServer(failures=[(400, {})] * 1000)) as server:
        flags = ["--policy", f"{server.url}", "--n", "500", "--in-flight", "4", "--out", "e"]
        assert run([*TASK, *flags]) == 1
        assert len(server.bodies) < 20
    assert "none of the first 8 samples" in capsys.readouterr().err


def test_eval_when_a_later_policy_fails_then_the_table_of_what_was_played_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ChatServer(failures=[(400, {})] * 1000)) as server:
        policies = ["--policy", "scripted", "--policy", server.url]
        assert run([*TASK, *policies, "--n", "20", "--in-flight", "4", "--out", "e"]) == 1
    seen = capsys.readouterr()
    assert "| scripted | 100.0 %" in seen.out
    assert "none of the first 8 samples" in seen.err
    assert "| scripted | 100.0 %" in (tmp_path / "e" / "report.md").read_text("utf-8")


def test_eval_when_interrupted_then_says_how_to_go_on(tmp_path: Path) -> None:
    flags = ["--policy", "random", "--n", "100000", "--out", "e"]
    process = subprocess.Popen(
        [sys.executable, "-m", "troupe.cli", *TASK, *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    path = tmp_path / "e" / EPISODES
    deadline = time.monotonic() + 60
    while not (path.is_file() and path.stat().st_size > 1000):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--out e goes on" in said
