"""Opens prepared JSON Lines files by row number, without keeping their rows in memory."""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.tasks.family import SPLITS, Split

RowT = TypeVar("RowT", bound=BaseModel)

MAX_ROW_BYTES = 64 * 1024 * 1024
_MAX_FAULTS = 5
_MAX_NAMED = 5


class PreparedRows(Generic[RowT]):
    """The rows of one prepared file, each checked against its schema when it is asked for.

    Opening reads the file once to index its lines; a row is then read at its offset.

    Example: ``PreparedRows(Path("data/gsm8k/test.jsonl"), MathRow)[0].answer``.
    """

    def __init__(self, path: Path, schema: type[RowT]) -> None:
        if not path.is_file():
            raise NotFoundError(
                f"{path} is no file; make it with `troupe data prepare <name> --out <folder>`"
            )
        self._path = path
        self._schema = schema
        self._starts = _line_starts(path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> RowT:
        """Row ``index``; raises InvalidArgumentError when there is none, or it is not a row."""
        if not 0 <= index < len(self._starts):
            raise InvalidArgumentError(
                f"{self._path} has {len(self._starts)} rows; there is no row {index}"
            )
        with self._path.open("rb") as file:
            file.seek(self._starts[index])
            line = file.readline(MAX_ROW_BYTES)
        try:
            return self._schema.model_validate(json.loads(line))
        except ValidationError as error:
            raise self._no_row(index, _faults_of(error)) from None
        except (ValueError, RecursionError) as error:
            raise self._no_row(index, type(error).__name__) from None

    def _no_row(self, index: int, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self._path}, row {index}: not a {self._schema.__name__} ({why}); prepare the file "
            "with `troupe data prepare`"
        )

    def __iter__(self) -> Iterator[RowT]:
        return (self[index] for index in range(len(self)))


class SplitRows(Generic[RowT]):
    """Prepared rows for each of Troupe's splits; a split without a file is empty.

    ``source`` is a folder that ``troupe data prepare`` wrote (``train.jsonl``, ``test.jsonl``), one
    file of a single split (all of it is ``test``), or a mapping of splits to files.
    """

    def __init__(self, source: Path | Mapping[Split, Path], schema: type[RowT]) -> None:
        files = source if isinstance(source, Mapping) else _files_of(source)
        self._rows = {split: PreparedRows(path, schema) for split, path in files.items()}
        self._is_compared = False

    def size(self, split: Split) -> int:
        """Number of rows in ``split``."""
        return len(self._rows[split]) if split in self._rows else 0

    def row(self, split: Split, index: int) -> RowT:
        """Row ``index`` of ``split``; raises InvalidArgumentError when it is out of range."""
        if split not in self._rows:
            raise InvalidArgumentError(
                f"no file was given for split '{split}'; there are {sorted(self._rows)}"
            )
        return self._rows[split][index]

    def rows(self, split: Split) -> Iterator[RowT]:
        """All rows of ``split``, in order."""
        return iter(self._rows[split]) if split in self._rows else iter(())

    def refuse_shared(self, compared: Callable[[RowT], str]) -> None:
        """Raises InvalidArgumentError when a held-out row's ``compared`` is also a train row's.

        Rows in which nothing is compared (an empty text) are in no other split.
        """
        held_out = [rows for split, rows in self._rows.items() if split != "train"]
        if self._is_compared or "train" not in self._rows or not held_out:
            return
        train = {_digest(text) for text in map(compared, self._rows["train"]) if text}
        for rows in held_out:
            shared = [n for n, row in enumerate(rows) if _digest(compared(row)) in train]
            if shared:
                named = ", ".join(map(str, shared[:_MAX_NAMED]))
                raise InvalidArgumentError(
                    f"{len(shared)} rows of {rows.path} are also rows of the train file "
                    f"{self._rows['train'].path}, by number (from 0): {named}; prepare the train "
                    f"file with --against {rows.path} --drop-contaminated",
                    pointer="/task/params",
                )
        self._is_compared = True


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _faults_of(error: ValidationError) -> str:
    """The wrong fields, without their values, because the file may be any file."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    # The name of an extra field comes from the file; all other names are the schema's.
    messages = [
        entry["type"]
        if entry["type"] == "extra_forbidden" or not entry["loc"]
        else f"{entry['loc'][0]}: {entry['type']}"
        for entry in errors
    ]
    return "; ".join(messages[:_MAX_FAULTS])


def _line_starts(path: Path) -> "array[int]":
    starts: array[int] = array("q")
    at = 0
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                starts.append(at)
            at += len(line)
    return starts


def _files_of(source: Path) -> dict[Split, Path]:
    if source.is_file():
        return {_split_named(source): source}
    if not source.exists():
        raise NotFoundError(
            f"{source} does not exist; give a prepared file or its folder, or make one with "
            "`troupe data prepare <name> --out <folder>`"
        )
    files: dict[Split, Path] = {
        split: source / f"{split}.jsonl"
        for split in SPLITS
        if (source / f"{split}.jsonl").is_file()
    }
    if not files:
        raise NotFoundError(
            f"{source} holds none of train.jsonl, validation.jsonl, test.jsonl; make them with "
            "`troupe data prepare <name> --out <folder>`"
        )
    return files


def _split_named(source: Path) -> Split:
    named: list[Split] = [split for split in SPLITS if source.name == f"{split}.jsonl"]
    return named[0] if named else "test"


__all__ = ["PreparedRows", "SplitRows"]
