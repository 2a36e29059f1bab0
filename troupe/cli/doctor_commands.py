"""``troupe doctor``: shows what this machine lacks, and what to do about it."""

import typer
from rich.table import Table
from rich.text import Text

from troupe.cli import options as opt
from troupe.cli.doctor import document, examine
from troupe.cli.output import EXIT_FAILED, out, print_json
from troupe.cli.settings import settings_from

_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(url: opt.Url = None, runs_dir: opt.RunsDir = None, as_json: opt.AsJson = False) -> None:
    """Check GPU, memory, disk, ports, Redis, engine and versions; status 1 on an error."""
    findings = examine(settings_from(rest_url=url, runs_dir=runs_dir))
    if as_json:
        print_json(document(findings))
    else:
        table = Table("", "check", "result", box=None)
        for finding in findings:
            detail = Text(finding.detail)
            if finding.advice and finding.verdict != "ok":
                detail.append(f"\n-> {finding.advice}", style="dim")
            table.add_row(
                Text(finding.verdict, style=_STYLES[finding.verdict]), finding.name, detail
            )
        out().print(table)
    if any(finding.verdict == "error" for finding in findings):
        raise typer.Exit(EXIT_FAILED)
