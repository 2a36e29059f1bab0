"""Turns published files into prepared ones: converted, checked, deduplicated, listed.

Each file appears complete or not at all; equal inputs and options give equal bytes.
"""

import json
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ValidationError

from troupe.data.dataset import Dataset, RefusedRowError
from troupe.data.manifest import (
    CARD,
    MANIFEST,
    Input,
    Manifest,
    Overlap,
    SplitRecord,
    card,
    read_manifest,
)
from troupe.data.overlap import Texts, near_verbatim
from troupe.data.rows import read_rows
from troupe.data.sources import Source, digest_of, files_of, is_one_split
from troupe.durable import put
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.tasks.family import SPLITS, Split

MIN_SHARE = 0.5
"""Share of a row's runs of words that must occur in the other set to call it overlap."""

MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Options:
    """How to prepare. ``against`` are prepared files that the rows must not overlap with."""

    splits: tuple[Split, ...] = ()
    against: tuple[Path, ...] = ()
    drop_overlap: bool = False
    min_share: float = MIN_SHARE

    def recorded(self) -> dict[str, str]:
        """Those that a split's record keeps."""
        return {
            "drop_overlap": str(self.drop_overlap).lower(),
            "min_share": f"{self.min_share:g}",
        }


def prepare(dataset: Dataset, source: Source, out: Path, options: Options) -> Manifest:
    """Write ``<out>/<name>/<split>.jsonl`` for each split, a manifest and a card.

    Held-out splits come first; train is compared with them and with ``options.against``. A train
    file that is there already is compared with those that are made anew, and stays as it is.
    Raises InvalidArgumentError or NotFoundError when the source does not hold a split.
    """
    splits = _order(dataset, source, options.splits)
    if options.against and "train" not in splits:
        raise InvalidArgumentError(
            "--against compares train rows, and none are prepared here; compare the training set "
            "with this one, once it is prepared, or leave --against out"
        )
    files = {split: _files(dataset, source, split) for split in splits}
    folder = out / dataset.name
    folder.mkdir(parents=True, exist_ok=True)
    manifest = _resumed_manifest(dataset, folder)
    if options.drop_overlap and "train" in manifest.splits and "train" not in splits:
        raise InvalidArgumentError(
            f"{folder} has train rows that were prepared before, and --drop-contaminated leaves "
            f"out none of them; prepare train with {', '.join(splits)}, or leave it out"
        )
    for split in splits:
        against = list[Path]()
        if split == "train":
            held_out = (folder / r.file for s, r in manifest.splits.items() if s != "train")
            against = [*options.against, *held_out]
        record = _prepare_split(
            dataset, files[split], split, folder, against, options, source.revision
        )
        records = {**manifest.splits, split: record}
        if split != "train" and "train" in records and "train" not in splits:
            before = manifest.splits.get(split)
            train = _compared_again(dataset, records["train"], folder, record, before, options)
            records["train"] = train
        manifest = manifest.model_copy(update={"splits": records})
        with _whole(folder / MANIFEST) as file:
            file.write(manifest.to_json().encode())
    with _whole(folder / CARD) as file:
        file.write(card(dataset, manifest).encode())
    return manifest


def _order(dataset: Dataset, source: Source, requested: Sequence[Split]) -> list[Split]:
    """Splits to prepare, train last."""
    unknown = [split for split in requested if split not in dataset.splits]
    if unknown:
        raise InvalidArgumentError(
            f"{dataset.title} has no split '{unknown[0]}'; it has {', '.join(dataset.splits)}"
        )
    if is_one_split(source.path) and len(requested or dataset.splits) != 1:
        raise InvalidArgumentError(
            f"{source.path} is one split of {', '.join(dataset.splits)}; say which with --split"
        )
    return [split for split in reversed(SPLITS) if split in (requested or dataset.splits)]


def _resumed_manifest(dataset: Dataset, folder: Path) -> Manifest:
    """A new manifest with the splits that ``folder`` already holds undamaged."""
    previous = read_manifest(folder)
    splits = previous.splits if previous else {}
    return Manifest(
        dataset=dataset.name,
        task=dataset.task,
        hub_id=dataset.hub_id,
        licence=dataset.licence,
        citation=dataset.citation,
        splits={s: r for s, r in splits.items() if _is_whole(folder / r.file, r.sha256)},
    )


def _files(dataset: Dataset, source: Source, split: Split) -> list[Path]:
    files = files_of(dataset, source.path, split)
    if not files:
        patterns = ", ".join(dataset.splits[split])
        raise NotFoundError(
            f"{source.path} holds no file of split '{split}' of {dataset.title}: looked for "
            f"{patterns}; give the splits that are there with --split, or the file itself with "
            f"--source and --split {split}"
        )
    return files


def _prepare_split(
    dataset: Dataset,
    files: Sequence[Path],
    split: Split,
    folder: Path,
    against: Sequence[Path],
    options: Options,
    revision: str | None,
) -> SplitRecord:
    checks = [_Check.read(dataset, path, options.min_share) for path in against]
    target = folder / f"{split}.jsonl"
    writer = _Writer(dataset, checks, drop_overlap=options.drop_overlap)
    with _whole(target) as file:
        for path in files:
            for row in read_rows(path):
                if line := writer.line(row):
                    file.write(line)
        if not writer.num_written:
            raise InvalidArgumentError(
                f"{', '.join(map(str, files))} would give no row of split '{split}' of "
                f"{dataset.title}: {_counts(writer)}. Give its published files; {target} is left "
                "as it was"
            )
    return SplitRecord(
        file=target.name,
        sha256=digest_of(target),
        revision=revision,
        options=options.recorded(),
        num_read=writer.num_read,
        num_written=writer.num_written,
        refused=dict(sorted(writer.refused.items())),
        num_dropped=writer.num_dropped,
        inputs=tuple(Input(name=path.name, sha256=digest_of(path)) for path in files),
        overlaps=tuple(check.record() for check in checks),
    )


def _compared_again(
    dataset: Dataset,
    train: SplitRecord,
    folder: Path,
    held_out: SplitRecord,
    before: SplitRecord | None,
    options: Options,
) -> SplitRecord:
    """The record of an older train file, with its overlap with ``held_out``, ``before`` this one.

    What was found, and left out, when the train file was prepared stays where the file is equal.
    """
    name = f"{folder.name}/{held_out.file}"
    if any((o.against, o.sha256) == (name, held_out.sha256) for o in train.overlaps):
        return train
    check = _Check.read(dataset, folder / held_out.file, options.min_share)
    for number, row in enumerate(read_rows(folder / train.file), 1):
        check.meets(_compared(dataset, row, folder / train.file), str(row.get("id", number)))
    old = None if before is None else (name, before.sha256)
    others = [overlap for overlap in train.overlaps if (overlap.against, overlap.sha256) != old]
    return train.model_copy(update={"overlaps": (*others, check.record())})


class _Check:
    """One file that rows are compared with."""

    def __init__(self, name: str, digest: str, texts: Texts, min_share: float) -> None:
        self._name, self._digest, self._texts = name, digest, texts
        self._min_share = min_share
        self._counts: Counter[str] = Counter()
        self._examples: list[str] = []

    @classmethod
    def read(cls, dataset: Dataset, path: Path, min_share: float) -> "_Check":
        """Load ``path``, whose rows must have the fields that are compared."""
        texts = Texts(_compared(dataset, row, path) for row in read_rows(path))
        return cls(f"{path.parent.name}/{path.name}", digest_of(path), texts, min_share)

    def meets(self, text: str, row_id: str) -> bool:
        """Whether the row overlaps; counts it if so."""
        match = self._texts.find(text, min_share=self._min_share)
        if match is None:
            return False
        self._counts[match.kind] += 1
        if len(self._examples) < MAX_EXAMPLES:
            self._examples.append(row_id)
        return True

    def record(self) -> Overlap:
        """The overlap so far."""
        return Overlap(
            against=self._name,
            sha256=self._digest,
            min_share=self._min_share,
            num_exact=self._counts["exact"],
            num_ngram=self._counts["ngram"],
            examples=tuple(self._examples),
        )


_MISSHAPEN = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(SyntaxError, MemoryError, RecursionError),
)
"""Raised on reading a row of an unexpected shape; the last three come from
Python's parser, on NUL characters and deep nesting."""


class _Writer:
    """Turns published rows into lines; counts each row once, as written, refused or dropped."""

    def __init__(self, dataset: Dataset, checks: Sequence[_Check], *, drop_overlap: bool) -> None:
        self._dataset, self._checks, self._drop_overlap = dataset, checks, drop_overlap
        self._digests: set[bytes] = set()
        self.refused: Counter[str] = Counter()
        self.num_read = self.num_written = self.num_dropped = 0

    def line(self, row: dict[str, Any]) -> bytes | None:
        """The prepared line of the row, or None."""
        self.num_read += 1
        try:
            converted = self._convert(row)
        except RefusedRowError as refused:
            self.refused[refused.reason] += 1
            return None
        fields = converted.model_dump(mode="json", exclude_defaults=True)
        text = _compared(self._dataset, fields, Path(self._dataset.name))
        row_id = str(fields.get("id", self.num_read))
        overlaps = [check.meets(text, row_id) for check in self._checks]
        if any(overlaps) and self._drop_overlap:
            self.num_dropped += 1
            return None
        self.num_written += 1
        return json.dumps(fields, ensure_ascii=False, sort_keys=True).encode() + b"\n"

    def _convert(self, row: dict[str, Any]) -> BaseModel:
        try:
            converted = self._dataset.schema.model_validate(dict(self._dataset.convert(row)))
        except ValidationError as error:
            field = ".".join(str(part) for part in error.errors()[0]["loc"][:1])
            raise RefusedRowError(f"schema:{field}") from error
        except _MISSHAPEN as error:
            raise RefusedRowError(f"misshapen:{type(error).__name__}") from error
        fields = converted.model_dump(mode="json")
        compared = _compared(self._dataset, fields, Path())
        self._refuse_repeat(near_verbatim(compared), "duplicate")
        if "id" in fields:
            self._refuse_repeat(str(fields["id"]), "duplicate_id")
        return converted

    def _refuse_repeat(self, text: str, reason: str) -> None:
        digest = blake2b(f"{reason} {text}".encode(), digest_size=16).digest()
        if digest in self._digests:
            raise RefusedRowError(reason)
        self._digests.add(digest)


def _counts(writer: _Writer) -> str:
    refused = "".join(f", {count} {why}" for why, count in writer.refused.most_common())
    return f"{writer.num_read} read{refused}, {writer.num_dropped} dropped as overlap"


def _compared(dataset: Dataset, row: dict[str, Any], path: Path) -> str:
    try:
        return "\n".join(str(row[field]) for field in dataset.contamination_fields)
    except KeyError as error:
        raise InvalidArgumentError(
            f"{path} has rows without the field {error}, so they cannot be compared with "
            f"{dataset.title}; give files prepared for task '{dataset.task}'"
        ) from error


def _is_whole(path: Path, digest: str) -> bool:
    return path.is_file() and digest_of(path) == digest


@contextmanager
def _whole(path: Path) -> Generator[IO[bytes]]:
    """Open a file that appears under its name only when complete."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        put(partial, path)
    finally:
        partial.unlink(missing_ok=True)
