"""Writes docs/commands.md from the parser of ``troupe``: ``gen_cli_docs.py OUT``."""

import re
import sys
from pathlib import Path

import click
import typer
from typer.cli import get_docs_for_click

from troupe.cli.main import build_app

HEADER = """\
# Commands and options

Generated from the command line's parser by `make generate`; do not edit. What the commands are for,
exit status and settings: [cli.md](cli.md).

"""


def main() -> None:
    """Write the page to the path in the first argument."""
    command = typer.main.get_command(build_app())
    context = click.Context(command, info_name="troupe")
    text = get_docs_for_click(obj=command, ctx=context, name="troupe")
    Path(sys.argv[1]).write_text(HEADER + _below_header(text), encoding="utf-8")


def _below_header(text: str) -> str:
    """Sections under the page's title, without the lists of commands: typer cuts their texts."""
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)
    return text.replace("# `troupe`\n", "## `troupe`\n", 1)


if __name__ == "__main__":
    main()
