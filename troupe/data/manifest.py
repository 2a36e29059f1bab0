"""Records a preparation: counts, refusals, overlaps and checksums, as JSON and as a card.

Contains no time and no local path, so equal inputs give equal bytes.
"""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from troupe.data.dataset import Dataset
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split

FORMAT = 1
MANIFEST, CARD = "manifest.json", "README.md"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Input(_Record):
    """One published file that was read."""

    name: str
    sha256: str


class Overlap(_Record):
    """How many rows of a split also occur in ``against``; up to ten of them by id."""

    against: str
    sha256: str
    num_exact: int
    num_ngram: int
    examples: tuple[str, ...] = ()


class SplitRecord(_Record):
    """One written file. ``num_read`` rows were read: written, refused or dropped, each once."""

    file: str
    sha256: str
    num_read: int
    num_written: int
    refused: dict[str, int] = Field(default_factory=dict[str, int])
    num_dropped: int = 0
    inputs: tuple[Input, ...] = ()
    overlaps: tuple[Overlap, ...] = ()


class Manifest(_Record):
    """Everything that ``troupe data prepare`` wrote into one folder."""

    format: int = FORMAT
    dataset: str
    task: str
    hub_id: str
    revision: str | None = None
    licence: str
    citation: str
    options: dict[str, str] = Field(default_factory=dict[str, str])
    splits: dict[Split, SplitRecord] = Field(default_factory=dict[Split, SplitRecord])

    def to_json(self) -> str:
        """The manifest file's content."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in ``folder``, or None when there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, ValueError) as error:
        raise InvalidArgumentError(
            f"{path} is not a manifest of prepared data ({error}); give another --out, or remove it"
        ) from error


def card(dataset: Dataset, manifest: Manifest) -> str:
    """A Markdown page about the prepared files, for people."""
    lines = [
        f"# {dataset.title}, prepared for Troupe",
        "",
        f"- Task: `{dataset.task}`; use it with `task.params.data: <this folder>`.",
        f"- Published as: {dataset.hub_id}"
        + _at(manifest.revision)
        + f" ({dataset.format_source})",
        f"- Licence: {dataset.licence}",
        f"- Cite: {dataset.citation}",
        f"- Made by: `troupe data prepare {dataset.name}`",
        "",
        "| split | read | written | refused | dropped as overlap | sha256 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for split, record in sorted(manifest.splits.items()):
        refused = ", ".join(f"{n} {why}" for why, n in sorted(record.refused.items())) or "0"
        lines.append(
            f"| {split} | {record.num_read} | {record.num_written} | {refused} | "
            f"{record.num_dropped} | `{record.sha256[:16]}` |"
        )
    for split, record in sorted(manifest.splits.items()):
        for overlap in record.overlaps:
            lines += [
                "",
                f"Overlap of {split} with {overlap.against}: {overlap.num_exact} exact, "
                f"{overlap.num_ngram} by shared runs of words"
                + (f" (such as {', '.join(overlap.examples)})." if overlap.examples else "."),
            ]
    fields = ", ".join(f"`{name}`" for name in dataset.schema.model_fields)
    lines += ["", f"Fields of a row: {fields}.", ""]
    return "\n".join(lines)


def _at(revision: str | None) -> str:
    return f" at {revision}" if revision else ""
