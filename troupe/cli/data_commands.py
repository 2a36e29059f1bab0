"""``troupe data``: known data sets, published files turned into prepared ones, tasks counted."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from troupe.cli import options as opt
from troupe.cli.output import EXIT_FAILED, note, out, print_json
from troupe.data.manifest import Manifest
from troupe.errors import InvalidArgumentError
from troupe.evaluation.split_counts import SplitCount, count_splits
from troupe.tasks.family import SPLITS, Split

data_app = typer.Typer(
    no_args_is_help=True, help="Prepare published data sets; count a task's own."
)


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
        typer.Option(help="Prepared file to compare train rows with; may be repeated."),
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
    _print(manifest, target / dataset.name, is_train_new="train" in (splits or dataset.splits))


@data_app.command("card")
def card(
    target: Annotated[
        str,
        typer.Argument(help="Family name, job spec, module:Class or file.py.", metavar="TASK"),
    ],
    params: Annotated[str | None, typer.Option(help="Task parameters, JSON.")] = None,
    num_tasks: Annotated[
        int,
        typer.Option(
            "--num-tasks", "--n", min=1, help="Tasks to draw of each split; 1067 give +-3 points."
        ),
    ] = 1067,
    as_json: opt.AsJson = False,
) -> None:
    """Count the different tasks of each split, copies and twins apart; 1 if splits share any."""
    from troupe.conformance.target import find_targets, load_target

    references = find_targets(target, opt.params_of(params))
    if len(references) != 1:
        raise InvalidArgumentError(
            f"{target} has {len(references)} tasks: name one, as file.py:Class"
        )
    counts = count_splits(load_target(references[0]), num_tasks)
    if as_json:
        print_json([asdict(count) for count in counts])
    else:
        _print_counts(counts)
    if any(count.num_shared for count in counts):
        raise typer.Exit(EXIT_FAILED)


def _print_counts(counts: Sequence[SplitCount]) -> None:
    table = Table("split", "tasks", "drawn", "different", "up to twins", "commonest", box=None)
    for name in ("in other splits", "95 % interval", "for new twins"):
        table.add_column(name)
    for count in counts:
        cells = (
            "without end" if count.size is None else count.size,
            count.num_drawn,
            count.num_different,
            count.num_keys,
            count.num_of_commonest,
            count.num_shared,
            None if count.margin is None else f"+-{100 * count.margin:.1f} points",
            None if count.key_margin is None else f"+-{100 * count.key_margin:.1f} points",
        )
        table.add_row(count.split, *("-" if cell is None else str(cell) for cell in cells))
    out().print(table)


def _print(manifest: Manifest, folder: Path, *, is_train_new: bool) -> None:
    for split, record in sorted(manifest.splits.items()):
        refused = ", ".join(f"{n} {why}" for why, n in record.refused.items()) or "none"
        out().print(
            f"{folder / record.file}: {record.num_written} of {record.num_read} rows, refused: "
            f"{refused}",
        )
        for overlap in record.overlaps:
            num = overlap.num_exact + overlap.num_ngram
            done = "left out" if record.num_dropped else "kept: --drop-contaminated leaves them out"
            if split == "train" and not is_train_new:
                done = "of rows prepared before: prepare train again to compare or leave out"
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
