"""Every `troupe` command line of the pages is one that the command's parser takes."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from docs_blocks import ROOT, Command, commands

from troupe.cli.main import build_app

HISTORY = "CHANGELOG.md"
GENERATED = "docs/commands.md"
COMMANDS = [each for each in commands("troupe") if each.page not in (HISTORY, GENERATED)]


@pytest.fixture(scope="module")
def parser() -> Any:
    return typer.main.get_command(build_app())


def unparsed(parser: Any, command: Command) -> list[str]:
    """What the parser can't take, as it would say it."""
    context = parser.context_class(parser, info_name="troupe")
    arguments = [word.strip("[]") for word in command.words[1:]]
    if command.is_inline and arguments[-1:] in (["--resume"], ["--with"], ["--team"]):
        arguments.append("runs/JOB")  # a sentence names the option alone
    if arguments[:1] == ["COMMAND"]:
        return []
    while hasattr(parser, "commands") and arguments and arguments[0][0].islower():
        name = arguments.pop(0)
        if name not in parser.commands:
            return [f"no such command: {name}"]
        parser = parser.commands[name]
        context = parser.context_class(parser, info_name=name, parent=context)
    values, left, _ = parser.make_parser(context).parse_args(arguments)
    required = [p.name for p in parser.params if p.required and p.param_type_name == "argument"]
    missing = [name for name in required if not values.get(name) and not command.is_inline]
    return [f"unexpected: {word}" for word in left] + [f"missing: {name}" for name in missing]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_command_when_a_page_shows_it_then_the_parser_takes_it(
    parser: Any, command: Command
) -> None:
    assert unparsed(parser, command) == []


def test_commands_when_pages_are_read_then_there_are_many() -> None:
    assert len(COMMANDS) > 200


@pytest.mark.parametrize("words", [("nothing",), ("jobs", "nothing"), ("up", "now")])
def test_command_when_it_is_not_one_then_is_found(parser: Any, words: tuple[str, ...]) -> None:
    assert unparsed(parser, Command("page", 1, ("troupe", *words), is_inline=False)) != []


def test_command_when_it_has_an_unknown_option_then_is_found(parser: Any) -> None:
    command = Command("page", 1, ("troupe", "train", "job.yaml", "--no-such"), is_inline=False)
    with pytest.raises(Exception, match="--no-such"):
        unparsed(parser, command)


ALONE = ("README.md", "docs/getting-started.md", "docs/evaluation.md", "docs/writing-a-task.md")
"""Pages whose commands a reader types one after the other."""


def runs_alone(command: Command) -> bool:
    """Whether a command needs no service, no model and nothing from an index."""
    policies = {now for word, now in pairwise(command.words) if word == "--policy"}
    return (
        not command.is_inline
        and command.page in ALONE
        and (
            command.words[1] in ("new", "check", "dryrun")
            or bool(policies and policies <= {"scripted", "random"})
        )
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", ALONE)
def test_commands_when_a_page_is_followed_then_those_that_run_alone_succeed(
    page: str, tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    followed = [command for command in COMMANDS if command.page == page and runs_alone(command)]
    assert followed != []
    for command in followed:
        done = subprocess.run(
            [sys.executable, "-m", "troupe.cli.main", *command.words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, (command.name, done.stdout, done.stderr)
