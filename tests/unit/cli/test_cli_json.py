"""Every command takes --json; what is piped is never cut to a screen's width."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from troupe.cli.main import build_app, run
from troupe.cli.output import out


def commands(group: TyperGroup, prefix: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix}{name} ")
        elif isinstance(command, TyperCommand):
            yield f"{prefix}{name}", command


def every_command() -> dict[str, TyperCommand]:
    app = get_command(build_app())
    assert isinstance(app, TyperGroup)
    return dict(commands(app))


def test_every_command_when_asked_for_its_options_then_takes_json_and_says_what_it_does() -> None:
    found = every_command()
    assert {"new", "model tiny", "schema", "cancel", "episodes show", "keys add"} <= found.keys()
    flags = {name: [o for p in c.params for o in p.opts] for name, c in found.items()}
    assert [name for name, options in flags.items() if "--json" not in options] == []
    assert [name for name, command in found.items() if not command.help] == []


def test_every_command_when_looked_up_in_the_docs_then_is_listed() -> None:
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
    for name in every_command():
        _, _, last = name.rpartition(" ")
        assert f"`troupe {name}" in text or (last != name and f"`{last}" in text), name


def test_new_when_json_is_asked_then_names_folder_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "counting"
    assert run(["new", "task", "counting", "--package", "--out", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["folder"]) == ("counting", str(folder))
    assert str(folder / "pyproject.toml") in document["files"]


def test_schema_when_json_is_asked_then_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    plain = capsys.readouterr().out
    assert run(["schema", "--json"]) == 0
    assert capsys.readouterr().out == plain


def test_table_when_piped_then_no_column_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("job", "run folder", box=None)
    folder = "/srv/" + "a-folder-with-a-long-name/" * 20
    table.add_row("demo-1", folder)
    out().print(table)
    said = capsys.readouterr().out
    assert folder in said
    assert "…" not in said


def test_data_list_when_piped_then_every_row_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["data", "list", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert run(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(known) + 1
    for row, line in zip(known, lines[1:], strict=True):
        assert row["hub_id"] in line
        assert all(split in line for split in row["splits"])


def test_logs_when_json_and_follow_are_asked_then_exits_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["logs", "demo-1", "--json", "--follow"]) == 2
    assert "leave one of them out" in capsys.readouterr().err
