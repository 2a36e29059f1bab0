"""The ``troupe`` command: its commands, and the one place where errors become exit statuses."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from troupe import __version__
from troupe.cli import (
    data_commands,
    doctor_commands,
    eval_commands,
    export_commands,
    init_commands,
    job_commands,
    key_commands,
    kit_commands,
    platform_commands,
    run_commands,
    spec_commands,
    train_commands,
)
from troupe.cli.output import EXIT_INTERRUPTED, EXIT_OK, out, quiet_logs, report
from troupe.errors import TroupeError

EPILOG = "Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted."


def build_app() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="troupe",
        help="Train teams of LLM agents with on-policy RL.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    command = app.command
    command("demo", rich_help_panel="Train")(train_commands.demo)
    command("train", rich_help_panel="Train")(train_commands.train)
    command("eval", rich_help_panel="Train")(eval_commands.evaluate)
    command("export", rich_help_panel="Train")(export_commands.export)
    command("init", rich_help_panel="Specs and models")(init_commands.init)
    command("validate", rich_help_panel="Specs and models")(spec_commands.validate)
    command("dryrun", rich_help_panel="Specs and models")(spec_commands.dryrun)
    command("schema", rich_help_panel="Specs and models")(spec_commands.schema)
    spec_commands.model_app.command("tiny")(spec_commands.tiny)
    spec_commands.model_app.callback()(_model)
    app.add_typer(spec_commands.model_app, name="model", rich_help_panel="Specs and models")
    app.add_typer(data_commands.data_app, name="data", rich_help_panel="Tasks")
    command("new", rich_help_panel="Tasks")(kit_commands.new)
    command("check", rich_help_panel="Tasks")(kit_commands.check)
    command("doctor", rich_help_panel="Platform")(doctor_commands.doctor)
    command("up", rich_help_panel="Platform")(platform_commands.up)
    command("down", rich_help_panel="Platform")(platform_commands.down)
    command("status", rich_help_panel="Platform")(platform_commands.status)
    command("submit", rich_help_panel="Jobs")(job_commands.submit)
    command("watch", rich_help_panel="Jobs")(job_commands.watch_job)
    command("jobs", rich_help_panel="Jobs")(job_commands.jobs)
    command("queue", rich_help_panel="Jobs")(job_commands.queue)
    command("pause", rich_help_panel="Jobs")(job_commands.pause)
    command("resume", rich_help_panel="Jobs")(job_commands.resume)
    command("cancel", rich_help_panel="Jobs")(job_commands.cancel)
    command("delete", rich_help_panel="Jobs")(job_commands.delete)
    command("logs", rich_help_panel="Jobs")(run_commands.logs)
    command("checkpoints", rich_help_panel="Jobs")(run_commands.checkpoints)
    command("download", rich_help_panel="Jobs")(run_commands.download)
    run_commands.episodes_app.command("list")(run_commands.list_episodes)
    run_commands.episodes_app.command("show")(run_commands.show_episode)
    app.add_typer(run_commands.episodes_app, name="episodes", rich_help_panel="Jobs")
    key_commands.keys_app.command("add")(key_commands.add)
    key_commands.keys_app.command("list")(key_commands.list_keys)
    key_commands.keys_app.command("remove")(key_commands.remove)
    app.add_typer(key_commands.keys_app, name="keys", rich_help_panel="Platform")
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's); its exit status."""
    try:
        with quiet_logs():
            build_app()(args=None if arguments is None else list(arguments), prog_name="troupe")
    except TroupeError as error:
        return report(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else EXIT_OK
    return EXIT_OK


def main() -> None:
    """Entry point of the ``troupe`` script."""
    sys.exit(run())


def _show_version(is_asked: bool) -> None:
    if is_asked:
        out().print(__version__, markup=False)
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Train teams of LLM agents with on-policy RL."""


def _model() -> None:
    """Make base models."""


if __name__ == "__main__":
    main()
