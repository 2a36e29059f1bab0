"""A manifest from elsewhere chooses no code that runs here."""

import json
from pathlib import Path

import pytest
from run_folders import write_run

from troupe.cli.main import run
from troupe.publishing.content import ContentOptions, content_of
from troupe.publishing.manifest import MANIFEST
from troupe.publishing.team_folder import team_of_run
from troupe.publishing.to_folder import write_team

CODE = "class Evil:\n    raise SystemExit('it ran')\n"


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = team_of_run(write_run(tmp_path / "pair-1"))
    return Path(write_team(content_of(found, ContentOptions(), at=""), tmp_path / "out"))


def change(team: Path, part: str, value: object) -> None:
    document = json.loads((team / MANIFEST).read_text())
    document[part] = document[part] | value  # pyright: ignore[reportOperatorIssue]
    (team / MANIFEST).write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["evil.py:Evil", "evil:Evil", "os:system"])
def test_eval_when_a_published_team_names_code_then_it_is_not_loaded(
    team: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(team, "task", {"name": name})
    assert run(["eval", "--team", str(team), "--n", "1"]) == 2
    said = capsys.readouterr().err
    assert f"--task {name}" in said
    assert "it ran" not in said


def test_eval_when_a_published_team_names_a_workflow_of_code_then_it_is_not_loaded(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(team, "workflow", {"kind": "evil:Evil"})
    assert run(["eval", "--team", str(team), "--n", "1"]) == 2
    assert "--workflow evil:Evil" in capsys.readouterr().err


def test_eval_when_a_published_team_names_a_program_then_it_is_not_loaded(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = {"program": "evil:Evil", "tasks": "evil:Evil"}
    change(team, "task", {"name": "program", "params": params})
    assert run(["eval", "--team", str(team), "--n", "1"]) == 2
    assert "it ran" not in capsys.readouterr().err


def test_eval_when_the_team_learned_from_rows_then_it_says_where_to_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = write_run(tmp_path / "pair-1", has_rows=True)
    assert run(["eval", "--team", str(run_dir)]) == 2
    assert "troupe.train" in capsys.readouterr().err
