"""``troupe init``, ``doctor`` and ``keys`` without services, and the episode tree."""

import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from troupe.cli.episode_tree import draw
from troupe.cli.main import run
from troupe.cli.progress import sparkline
from troupe.cli.starter import starter_spec
from troupe.clients.rest.keys import digest_of, read_keys
from troupe.clients.rest.models.episode_tree import EpisodeDocument
from troupe.spec import load_spec, parse_spec


@pytest.mark.parametrize("task", ["plan_path", "code", "math", "tldr", "hanabi", "sudoku"])
@pytest.mark.parametrize("sharing", ["shared", "each"])
def test_starter_spec_of_any_task_is_valid(task: str, sharing: str) -> None:
    spec = parse_spec(starter_spec(task, sharing=sharing))
    assert len(spec.policies) == (1 if sharing == "shared" else len(spec.agents))


def test_init_writes_about_thirty_commented_lines_that_are_a_valid_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "job.yaml"
    flags = ["--yes", "--task", "plan_path", "--small", "--steps", "7", "--name", "mine"]
    assert run(["init", str(target), *flags]) == 0
    text = target.read_text()
    assert 25 <= len(text.splitlines()) <= 40
    assert text.count("\n# ") >= 8
    assert (load_spec(target).steps, load_spec(target).name) == (7, "mine")
    assert f"troupe train {target}" in capsys.readouterr().err
    assert run(["init", str(target), *flags]) == 2
    assert run(["init", str(target), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(target)


@pytest.mark.parametrize(("positions", "limit"), [(512, 256), (4096, 512)])
def test_init_when_the_models_context_is_short_then_it_is_room_for_a_prompt_too(
    tmp_path: Path, positions: int, limit: int
) -> None:
    config, target = tmp_path / "config.json", tmp_path / "job.yaml"
    config.write_text(json.dumps({"max_position_embeddings": positions}))
    assert run(["init", str(target), "--yes", "--model", str(tmp_path)]) == 0
    assert load_spec(target).sampling.max_new_tokens == limit


def test_init_when_a_name_has_a_space_then_its_next_lines_quote_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, model = tmp_path / "my job.yaml", tmp_path / "a model"
    assert run(["init", str(target), "--yes", "--small", "--model", str(model)]) == 0
    said = capsys.readouterr().err.replace("\n", "")
    for words in (f"dryrun '{target}'", f"train '{target}'", f"--out '{model}'"):
        assert words in said


@pytest.mark.parametrize("name", ["no", "on", "null", "yes"])
def test_init_when_yaml_would_read_a_name_as_something_else_then_it_is_quoted(
    name: str, tmp_path: Path
) -> None:
    target = tmp_path / "job.yaml"
    assert run(["init", str(target), "--yes", "--task", "plan_path", "--name", name]) == 0
    assert load_spec(target).name == name


def test_init_with_an_unknown_task_says_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "x.yaml"), "-y", "--task", "plan_pth"]) == 2
    assert "did you mean 'plan_path'?" in capsys.readouterr().err
    assert run(["init", str(tmp_path / "x.yaml"), "-y", "--sharing", "some"]) == 2
    assert not (tmp_path / "x.yaml").exists()


def test_keys_are_printed_once_and_kept_as_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.yaml"
    assert run(["keys", "add", "ci", "--scope", "read", "--days", "3", "--file", str(file)]) == 0
    key = capsys.readouterr().out.strip()
    assert key not in file.read_text()
    assert read_keys(file).keys[0].sha256 == digest_of(key)
    assert run(["keys", "list", "--json", "--file", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "ci"
    assert run(["keys", "add", "ci", "--scope", "all", "--file", str(file)]) == 2
    assert run(["keys", "add", "No Name", "--file", str(file)]) == 2
    assert run(["keys", "remove", "ci", "--file", str(file)]) == 0
    assert run(["keys", "remove", "ci", "--file", str(file)]) == 2


def test_keys_add_when_the_days_are_more_than_a_date_can_have_then_says_the_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.yaml"
    assert run(["keys", "add", "ci", "--days", "9999999", "--file", str(file)]) == 2
    assert "36500" in capsys.readouterr().err
    assert not file.exists()


def test_doctor_names_a_taken_port_and_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("TROUPE_REST_PORT", str(port))
        assert run(["doctor", "--json", "--runs-dir", str(tmp_path / "file" / "runs")]) == 1
        document = json.loads(capsys.readouterr().out)
        monkeypatch.setenv("TROUPE_PORTS", "auto")
        run(["doctor", "--json", "--runs-dir", str(tmp_path)])
        auto = {f["name"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert auto["ports"]["verdict"] == "ok"
    found = {f["name"]: f for f in document["findings"]}
    assert not document["ok"]
    assert f"rest {port}" in found["ports"]["detail"]
    assert "--ports auto" in found["ports"]["advice"]
    assert found["runs folder"]["verdict"] == "error"
    assert found["python"]["verdict"] == "ok"


def test_sparkline_spans_least_to_greatest() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline([float(i) for i in range(100)], width=10)) == 10


def test_episode_tree_marks_the_chosen_and_shows_texts_as_they_are() -> None:
    candidate = {
        "index": 0,
        "turn": 0,
        "trajectory": 0,
        "prompt": 0,
        "text": "[red]not markup[/red]",
        "reward": 1.0,
        "team_reward": 1.0,
        "reward_parts": [{"term": "team", "value": 1.0, "weight": 1.0, "contribution": 1.0}],
        "advantage": 0.5,
        "is_chosen": True,
        "is_done": True,
        "is_success": True,
        "is_truncated": False,
    }
    group = {
        "group_id": "g",
        "agent": "tool",
        "turn": 0,
        "policy": "p",
        "policy_version": 3,
        "spans_turns": False,
        "prompts": [[{"role": "user", "content": "hi"}]],
        "reward_mean": 1.0,
        "reward_std": 0.0,
        "is_flat": True,
        "candidates": [candidate],
    }
    episode = EpisodeDocument.model_validate(
        {
            "id": "train-00000-00000",
            "episode_id": "e",
            "round_id": "train-00000",
            "kind": "train",
            "step": 0,
            "task_id": "t/train/0",
            "is_success": True,
            "num_turns": 1,
            "team_return": 1.0,
            "num_tokens": 4,
            "wall_s": 0.1,
            "num_groups": 1,
            "num_candidates": 1,
            "agents": {},
            "task": {"task_id": "t", "name": "t", "params": {}, "split": "train", "index": 0},
            "turns": [{"turn": 0, "groups": [group]}],
            "others": [],
        }
    )
    console = Console(width=120, record=True, file=None)
    with console.capture() as captured:
        console.print(draw(episode))
    text = captured.get()
    assert "* 0 +1.000 A +0.50" in text
    assert "[red]not markup[/red]" in text


def test_every_part_of_the_starter_has_its_place_in_yaml(tmp_path: Path) -> None:
    run(["init", str(tmp_path / "a.yaml"), "-y", "--sharing", "each"])
    document = yaml.safe_load((tmp_path / "a.yaml").read_text())
    assert document == starter_spec("plan_path", sharing="each")
