"""Texts of models and logs reach the terminal without what would steer it."""

import io
import sys

import pytest
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from troupe.cli.output import err, note, out

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
