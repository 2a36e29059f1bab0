"""``troupe keys``: manages a router's API keys, in a file that the router reloads by itself."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.output import note, out, print_json
from troupe.clients.rest.keys import add_key, read_keys, remove_key
from troupe.clients.rest.models.session import Scope
from troupe.errors import InvalidArgumentError

keys_app = typer.Typer(
    no_args_is_help=True, help="Manage a router's API keys (TROUPE_ROUTER_API_KEYS)."
)
KeyName = Annotated[str, typer.Argument(help="Who uses the key.", metavar="NAME")]
File = Annotated[Path, typer.Option("--file", help="File of keys.")]
_FILE = Path("runs/.troupe/keys.yaml")
_SCOPES: dict[str, tuple[Scope, ...]] = {
    "read": ("read",),
    "submit": ("submit",),
    "admin": ("admin",),
    "code": ("code",),
    "admin,code": ("admin", "code"),
}


@keys_app.command()
def add(
    name: KeyName,
    scope: Annotated[
        str,
        typer.Option(
            help="read, submit or admin; each includes the former. code: submit, with own code; "
            "admin,code: both."
        ),
    ] = "submit",
    days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="Days until the key expires.")
    ] = None,
    rate_per_s: Annotated[float | None, typer.Option(help="Requests allowed a second.")] = None,
    max_replicas: Annotated[int | None, typer.Option(min=1, help="Replicas of its jobs.")] = None,
    file: File = _FILE,
    as_json: opt.AsJson = False,
) -> None:
    """Make a key, print it once, and keep its digest; an older key of NAME ends."""
    if scope not in _SCOPES:
        raise InvalidArgumentError(f"--scope is {', '.join(_SCOPES)}, not '{scope}'")
    more: dict[str, object] = {"rate_per_s": rate_per_s, "max_replicas": max_replicas}
    if days is not None:
        more["expires_at"] = datetime.now(UTC) + timedelta(days=days)
    key = add_key(file, name, _SCOPES[scope], **more)
    if as_json:
        print_json({"name": name, "scope": scope, "key": key, "file": str(file)})
        return
    out().print(key)
    note(f"kept as a digest in {file}; routers with TROUPE_ROUTER_API_KEYS={file} know it at once")


@keys_app.command("list")
def list_keys(file: File = _FILE, as_json: opt.AsJson = False) -> None:
    """List the keys by name; the keys themselves are not kept."""
    keys = read_keys(file).keys
    if as_json:
        print_json([key.model_dump(mode="json", exclude={"sha256"}) for key in keys])
        return
    table = Table("name", "scopes", "ends", box=None)
    for key in keys:
        ends = key.expires_at.isoformat() if key.expires_at else "-"
        table.add_row(key.name, ", ".join(key.all_scopes), ends)
    out().print(table if keys else "no keys")


@keys_app.command()
def remove(name: KeyName, file: File = _FILE, as_json: opt.AsJson = False) -> None:
    """End a key."""
    remove_key(file, name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        out().print(f"{name} may no longer ask")
