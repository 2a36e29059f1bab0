"""``troupe publish``: sends a trained team to a hub, a registry or a folder.

Owns the flags. What is sent and where is ``troupe.publishing``'s.
"""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.export_commands import export_checkpoint, run_folder_of
from troupe.cli.output import note, out, print_json
from troupe.errors import InvalidArgumentError
from troupe.ids import is_hub_id
from troupe.publishing.content import ContentOptions, TeamContent, content_of
from troupe.publishing.hub import send_to_hub
from troupe.publishing.oci import send_to_registry
from troupe.publishing.places import FolderPlace, HubPlace, Place, read_place
from troupe.publishing.settings import PublishSettings
from troupe.publishing.team_folder import TeamFolder, team_of_run
from troupe.publishing.to_folder import write_team
from troupe.spec.issues import suggest

_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


_To = Annotated[
    str, typer.Option("--to", help="hub:ORG/NAME, oci:HOST/REPOSITORY:TAG or folder:PATH.")
]
_Checkpoint = Annotated[
    str, typer.Option(help="'latest', 'best' or a step [the weights at the job's end].")
]
_Licence = Annotated[
    str, typer.Option("--license", help="Such as apache-2.0 [the base's, where it is known].")
]
_Dataset = Annotated[
    list[str] | None, typer.Option(help="Hub id of a data set, for the card; repeatable.")
]
_Base = Annotated[
    list[str] | None,
    typer.Option(
        help="Hub id of the model that a local base folder is, or BASE=ID of several. Without it "
        "the folder is sent too."
    ),
]
_Evaluation = Annotated[
    Path | None, typer.Option(help="Folder of `troupe eval --out`, for the card.")
]
_Public = Annotated[
    bool, typer.Option("--public", help="For everybody to read; a hub's teams are private.")
]
_Dry = Annotated[bool, typer.Option("--dry-run", help="List what would be sent; send nothing.")]


def publish(
    job: opt.JobArgument,
    to: _To,
    checkpoint: _Checkpoint = "",
    licence: _Licence = "",
    dataset: _Dataset = None,
    base: _Base = None,
    evaluation: _Evaluation = None,
    public: _Public = False,
    is_dry: _Dry = False,
    runs_dir: opt.RunsDir = None,
    as_json: opt.AsJson = False,
) -> None:
    """Send a trained team to a hub, a registry or a folder: weights, cards and team.json.

    `troupe eval --team` and `troupe serve` read it back. An interrupted command may be repeated.
    """
    place = read_place(to)
    if public and not isinstance(place, HubPlace):
        raise InvalidArgumentError(f"--public belongs to hub:; {place} decides who may read it")
    if licence and not _LICENCE.fullmatch(licence):
        raise InvalidArgumentError(f"--license '{licence}': give an identifier such as apache-2.0")
    for name in dataset or ():
        if not is_hub_id(name):
            raise InvalidArgumentError(f"--dataset '{name}' is not the hub id of a data set")
    folder = run_folder_of(job, runs_dir)
    if checkpoint:
        export_checkpoint(folder, checkpoint)
    team = team_of_run(folder, checkpoint)
    options = ContentOptions(
        licence=licence,
        datasets=tuple(dataset or ()),
        base_ids=_base_ids(team, base or []),
        evaluation=evaluation,
    )
    content = content_of(team, options, at=place.repo if isinstance(place, HubPlace) else "")
    address = "" if is_dry else _send(content, place, public=public)
    _show(content, place, address, as_json=as_json)


def _show(content: TeamContent, place: Place, address: str, *, as_json: bool) -> None:
    """Every file, and where the team is now; without an address nothing was sent."""
    if as_json:
        files = {name: file.entry.model_dump() for name, file in content.files.items()}
        print_json({"to": str(place), "address": address, "files": files})
        return
    table = Table("file", "bytes", "sha256", box=None)
    for name, file in content.files.items():
        table.add_row(name, f"{file.entry.size_bytes:,}", file.entry.sha256[:16])
    out().print(table)
    size = f"{len(content.files)} files, {content.size_bytes:,} bytes"
    if address:
        note(f"sent {size}")
        out().print(address)
    else:
        note(f"{size} would be sent to {place}; nothing was sent")


def _send(content: TeamContent, place: Place, *, public: bool) -> str:
    if isinstance(place, FolderPlace):
        return write_team(content, Path(place.path))
    settings = PublishSettings()
    if isinstance(place, HubPlace):
        return send_to_hub(content, place, settings, public=public)
    return send_to_registry(content, place, settings)


def _base_ids(team: TeamFolder, texts: list[str]) -> dict[str, str]:
    names = list(team.manifest.bases)
    ids: dict[str, str] = {}
    for text in texts:
        name, equals, hub_id = text.rpartition("=")
        if not equals and len(names) > 1:
            raise InvalidArgumentError(
                f"--base {text}: the team has several bases; name one: --base {names[0]}={text}"
            )
        name = name or names[0]
        if name not in names:
            raise InvalidArgumentError(
                f"--base {text}: no base is called '{name}'; {suggest(name, names)}"
            )
        ids[name] = hub_id
    return ids
