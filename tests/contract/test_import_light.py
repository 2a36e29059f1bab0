"""The SDK and the command start without torch, web frameworks or services."""

import ast
import subprocess
import sys
from typing import Any

import pytest
import typer

from troupe.cli.commands import COMMANDS
from troupe.cli.main import build_app

HEAVY = ("torch", "transformers", "peft", "fastapi", "uvicorn", "matplotlib", "services")


@pytest.mark.parametrize(
    "module",
    ["troupe", "troupe.spec", "troupe.clients.rest", "troupe.clients", "troupe.cli.main"],
)
def test_import_when_only_the_sdk_is_used_then_nothing_heavy_is_loaded(module: str) -> None:
    code = (
        f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules], end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]"


def test_probe_when_imported_then_needs_the_standard_library_alone() -> None:
    code = "import sys, troupe.cli.probe; print('pydantic' in sys.modules, end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False"


def test_help_when_shown_then_imports_no_command() -> None:
    """Completion and `--help` answer at once: the table of commands is all that they read."""
    code = (
        "import sys; from troupe.cli.main import run; run(['--help']); "
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr); "
        "print([n for n in sys.modules if n.startswith('troupe.cli.')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "train" in done.stdout
    tops, commands = (ast.literal_eval(line) for line in done.stderr.splitlines())
    slow = {"redis", "opentelemetry", "grpc", "httpx", "pydantic", "yaml", "google", *HEAVY}
    assert sorted(slow & set(tops)) == []
    names = ("commands", "main", "output", "signals")
    assert sorted(commands) == [f"troupe.cli.{name}" for name in names]


def test_help_when_shown_then_says_of_each_command_what_the_command_says() -> None:
    app: Any = typer.main.get_command(build_app())
    assert {name: entry.summary for name, entry in COMMANDS.items()} == {
        name: command.help.partition("\n\n")[0].replace("\n", " ")
        for name, command in app.commands.items()
    }
    assert {name: entry.panel for name, entry in COMMANDS.items()} == {
        name: command.rich_help_panel for name, command in app.commands.items()
    }
