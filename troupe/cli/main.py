"""The ``troupe`` command: dispatch, and the one place where errors become exit statuses.

A command's module is imported when that command runs: ``troupe --help`` reads the table alone.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from troupe import __version__
from troupe.cli.commands import COMMANDS
from troupe.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, err, out, quiet_logs, report
from troupe.cli.signals import terminate_as_interrupt
from troupe.errors import InvalidArgumentError, TroupeError

EPILOG = "Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted."


class _CommandsByName(TyperGroup):
    """Lists commands from the table, and imports only the one that runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None or cmd_name in self.commands:
            return self.commands.get(cmd_name)
        return TyperCommand(cmd_name, help=entry.summary, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            loaded: Any = typer.main.get_command(build_app([args[0]]))
            self.commands[args[0]] = _without_markup(loaded.commands[args[0]])
        return super().resolve_command(ctx, args)


def _without_markup(command: Any) -> Any:
    """``command`` with help whose brackets, such as [test], rich does not take for its markup."""
    for option in command.params:
        if getattr(option, "help", None):
            option.help = escape(option.help)
    for subcommand in getattr(command, "commands", {}).values():
        _without_markup(subcommand)
    return command


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command with the subcommands in ``names``, imported."""
    app = _app(TyperGroup)
    for name in names:
        entry = COMMANDS[name]
        module, _, attribute = entry.target.partition(":")
        target: Any = getattr(import_module(f"troupe.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name, rich_help_panel=entry.panel)
        else:
            app.command(name, rich_help_panel=entry.panel)(target)
    return app


def _app(group: type[TyperGroup]) -> typer.Typer:
    app = typer.Typer(
        name="troupe",
        cls=group,
        help="Train teams of LLM agents with on-policy RL.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's); its exit status."""
    # A service is started by `python -m`, which imports from the working directory as well: what a
    # spec names `module:attr` must be the same here.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append("")
    try:
        with quiet_logs():
            _app(_CommandsByName)(
                args=None if arguments is None else list(arguments), prog_name="troupe"
            )
    except TroupeError as error:
        return report(error)
    except OSError as error:
        if error.filename is None:  # no path, which a person could correct
            raise
        return report(
            InvalidArgumentError(f"{error.filename2 or error.filename}: {error.strerror}")
        )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or EXIT_OK
        err().print(str(ended.code))
        return EXIT_FAILED
    return EXIT_OK


def main() -> None:
    """Entry point of the ``troupe`` script."""
    with terminate_as_interrupt():
        status = run()
    sys.exit(status)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        out().print(__version__)
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Train teams of LLM agents with on-policy RL."""


if __name__ == "__main__":
    main()
