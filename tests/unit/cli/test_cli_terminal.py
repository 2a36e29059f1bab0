"""Texts of models and logs reach the terminal without what would steer it."""

import io
import sys
from types import SimpleNamespace

import pytest
import structlog
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from troupe.cli import options
from troupe.cli.main import run
from troupe.cli.output import err, note, out, quiet_logs
from troupe.cli.progress import Progress, panel

EVIL = "a\x1b]52;c;ZXZpbA==\x07b\x1b[2J\x9b31mc\r\x00\x7fd\te\u00e9\nf"
PLAIN = "a]52;c;ZXZpbA==b[2J31mcd"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_when_it_steers_the_terminal_then_only_its_characters_are_printed(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    files = [(Terminal if is_terminal else io.StringIO)() for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", files[0])
    monkeypatch.setattr(sys, "stderr", files[1])
    tree = Tree(Text(EVIL, style="bold red"))
    tree.add(Text(EVIL))
    table = Table("column")
    table.add_row(Text(EVIL))
    for renderable in (EVIL, Text(EVIL), tree, table):
        out().print(renderable, markup=False)
        err().print(renderable, markup=False)
    note(EVIL)
    for file in files:
        said = file.getvalue()
        assert said.count(PLAIN) >= 5 and "\u00e9" in said and "\nf" in said
        for bad in ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\x00", "\x7f", "\r"):
            assert bad not in said
    # Colours are rich's own.
    assert ("\x1b[1;31m" in files[0].getvalue()) is is_terminal


ERROR = "KeyError: '[/INST]' :key: install it: pip install 'troupe[rollout]' [dim]"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_when_it_has_brackets_and_colons_then_it_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    file = (Terminal if is_terminal else io.StringIO)()
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setenv("COLUMNS", "200")
    table = Table("column", box=None)
    table.add_row(ERROR)
    for renderable in (ERROR, table):
        out().print(renderable)
    assert file.getvalue().count(ERROR) == 2


class Jobs:
    """A router's client with one job that failed."""

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def jobs(self, *, limit: int) -> list[SimpleNamespace]:
        failed = {"job_id": "a-1", "state": "failed", "error": ERROR, "run_dir": "runs/a-1"}
        return [SimpleNamespace(**failed, step=0, steps=5, queue_position=None)]


def test_jobs_when_an_error_has_square_brackets_then_it_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "connect", lambda *_: Jobs())
    assert run(["jobs"]) == 0
    assert ERROR in capsys.readouterr().out


def test_panel_when_it_is_drawn_then_styles_are_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("a-1", 5, metrics={"reward_mean": 0.5}, phases={"[learn]": 1.0})
    out().print(panel(progress, 0.0))
    said = capsys.readouterr().out
    assert "reward +0.500" in said and "[learn] 1.0 s" in said
    assert "dim" not in said


def test_quiet_logs_when_two_calls_overlap_then_the_last_one_restores_them() -> None:
    before = structlog.get_config()["wrapper_class"]
    first, second = quiet_logs(), quiet_logs()
    first.__enter__()
    quiet = structlog.get_config()["wrapper_class"]
    second.__enter__()
    first.__exit__(None, None, None)
    assert structlog.get_config()["wrapper_class"] is quiet
    second.__exit__(None, None, None)
    assert structlog.get_config()["wrapper_class"] is before
