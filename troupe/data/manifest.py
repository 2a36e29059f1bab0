"""Records a preparation: counts, refusals, overlaps and checksums, as JSON and as a card.

Contains no time and no local path, so equal inputs give equal bytes.
"""

import json
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from troupe.data.dataset import Dataset
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split

FORMAT = 2
MANIFEST, CARD = "manifest.json", "README.md"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Input(_Record):
    """One published file that was read."""

    name: str
    sha256: str


class Overlap(_Record):
    """How many rows of a split also occur in ``against``; up to ten of them by id.

    ``min_share`` is the share it was compared with, None where format 1 left it open.
    """

    against: str
    sha256: str
    min_share: float | None = None
    num_exact: int
    num_ngram: int
    examples: tuple[str, ...] = ()


class SplitRecord(_Record):
    """One written file. ``num_read`` rows were read: written, refused or dropped, each once.

    ``revision`` is the hub's, None of local files and where format 1 left it open, as it did
    ``options``.
    """

    file: str
    sha256: str
    revision: str | None = None
    options: dict[str, str] = Field(default_factory=dict[str, str])
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
    licence: str
    citation: str
    splits: dict[Split, SplitRecord] = Field(default_factory=dict[Split, SplitRecord])

    @model_validator(mode="before")
    @classmethod
    def _of_format_1(cls, document: Any) -> Any:
        """Format 1 has one revision and options, of whichever splits were prepared last."""
        if not isinstance(document, dict) or cast("dict[str, Any]", document).get("format") != 1:
            return document
        fields = cast("dict[str, Any]", document)
        dropped = ("format", "revision", "options")
        return {name: value for name, value in fields.items() if name not in dropped}

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
        f"- Published as: {dataset.hub_id} ({dataset.format_source})",
        f"- Licence: {dataset.licence}",
        f"- Cite: {dataset.citation}",
        f"- Made by: `troupe data prepare {dataset.name}`",
        "",
        "| split | revision | read | written | refused | dropped as overlap | sha256 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for split, record in sorted(manifest.splits.items()):
        refused = ", ".join(f"{n} {why}" for why, n in sorted(record.refused.items())) or "0"
        lines.append(
            f"| {split} | {record.revision or '-'} | {record.num_read} | {record.num_written} | "
            f"{refused} | {record.num_dropped} | `{record.sha256[:16]}` |"
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
