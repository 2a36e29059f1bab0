"""``troupe data``: list the known data sets, and turn published files into prepared ones."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.output import note, out, print_json
from troupe.data.manifest import Manifest
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split

data_app = typer.Typer(no_args_is_help=True, help="Prepare published data sets.")


@data_app.command("list")
def list_datasets(as_json: opt.AsJson = False) -> None:
    """List the data sets that can be prepared, and for which task."""
    from troupe.data.registry import known_datasets

    datasets = known_datasets().values()
    if as_json:
        print_json(
            [
                {
                    "name": dataset.name,
                    "task": dataset.task,
                    "title": dataset.title,
                    "hub_id": dataset.hub_id,
                    "splits": list(dataset.splits),
                    "licence": dataset.licence,
                }
                for dataset in datasets
            ]
        )
        return
    table = Table("name", "task", "splits", "published as", box=None)
    for dataset in datasets:
        table.add_row(dataset.name, dataset.task, ", ".join(dataset.splits), dataset.hub_id)
    out().print(table)


@data_app.command("prepare")
def prepare_dataset(
    name: Annotated[str, typer.Argument(help="Data set; see `troupe data list`.", metavar="NAME")],
    source: Annotated[
        str, typer.Option(help="File or folder as published, or 'hub' to download it.")
    ] = "hub",
    target: Annotated[Path, typer.Option("--out", help="Folder of prepared data sets.")] = Path(
        "data"
    ),
    split: Annotated[
        list[str] | None, typer.Option(help="Only this split; may be repeated.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Prepared file to compare with for overlap; may be repeated."),
    ] = None,
    drop_contaminated: Annotated[
        bool, typer.Option("--drop-contaminated", help="Leave overlapping rows out.")
    ] = False,
    min_share: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="Share of a row's 13-word sequences from which it overlaps."
        ),
    ] = 0.5,
    revision: Annotated[str | None, typer.Option(help="Revision of the hub repository.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Turn published files into a task's own rows, with a manifest, checksums and a card.

    Rows that cannot be used are counted by reason. Train rows are compared with the held-out
    splits and with every --against file.
    """
    from troupe.data.prepare import Options, prepare
    from troupe.data.registry import find_dataset
    from troupe.data.sources import locate

    dataset = find_dataset(name)
    splits: tuple[Split, ...] = tuple(_split(text) for text in split or ())
    sources = locate(dataset, source, splits or tuple(dataset.splits), revision)
    options = Options(splits, tuple(against or ()), drop_contaminated, min_share)
    manifest = prepare(dataset, sources, target, options)
    if as_json:
        print_json(manifest.model_dump(mode="json"))
        return
    _print(manifest, target / dataset.name)


def _print(manifest: Manifest, folder: Path) -> None:
    for split, record in sorted(manifest.splits.items()):
        refused = ", ".join(f"{n} {why}" for why, n in record.refused.items()) or "none"
        out().print(
            f"{folder / record.file}: {record.num_written} of {record.num_read} rows, refused: "
            f"{refused}",
            markup=False,
        )
        for overlap in record.overlaps:
            num = overlap.num_exact + overlap.num_ngram
            done = "left out" if record.num_dropped else "kept: --drop-contaminated leaves them out"
            if num:
                note(
                    f"warning: {num} {split} rows overlap with {overlap.against} "
                    f"({overlap.num_exact} exactly); {done}"
                )


def _split(text: str) -> Split:
    for split in SPLITS:
        if text == split:
            return split
    raise InvalidArgumentError(f"no split is called '{text}'; there are {', '.join(SPLITS)}")
