"""Rows of a data set as JSON objects, and how they divide into training and held-out tasks.

Takes what a caller has: a list of dicts, a file of rows (``troupe.data.rows``), or any object
with ``__len__`` and ``__getitem__`` that gives dicts, such as ``datasets.Dataset``.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from troupe.data.rows import read_rows
from troupe.errors import InvalidArgumentError
from troupe.tasks.content import writable
from troupe.tasks.family import Split

Row = dict[str, Any]
"""One example: a JSON object."""

HELD_OUT_SHARE = 0.1
MAX_HELD_OUT = 200


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Training rows and held-out rows.

    Example: ``TaskRows.of([{"prompt": "2 + 2"}, {"prompt": "3 + 5"}])``.
    """

    train: tuple[Row, ...]
    held_out: tuple[Row, ...]

    @classmethod
    def of(cls, dataset: object, held_out: object = None) -> "TaskRows":
        """TaskRows of ``dataset``; without ``held_out``, its last tenth (at most 200) is held out.

        That is a tenth of its different rows: repeats of a held-out row are left out of training.

        Raises InvalidArgumentError when there is no row, when a row is not a JSON object, or when
        a held-out row is a training row as well.
        """
        rows = _rows(dataset, "dataset")
        if not rows:
            raise InvalidArgumentError("dataset has no rows; give at least one example")
        if held_out is None:
            return cls._divided(rows)
        rest = _rows(held_out, "held_out")
        seen = {_text(row) for row in rows}
        for index, row in enumerate(rest):
            if _text(row) in seen:
                raise InvalidArgumentError(
                    f"held_out row {index} is a training row as well; success on it would not be "
                    "held out. Remove it from one of the two"
                )
        return cls(tuple(rows), tuple(rest))

    @classmethod
    def _divided(cls, rows: list[Row]) -> "TaskRows":
        different = {_text(row): row for row in rows}
        count = min(MAX_HELD_OUT, int(len(different) * HELD_OUT_SHARE))
        held_out = dict(list(different.items())[len(different) - count :])
        train = (row for row in rows if _text(row) not in held_out)
        return cls(tuple(train), tuple(held_out.values()))

    def of_split(self, split: Split) -> tuple[Row, ...]:
        """The rows of a split; held-out rows are the validation split."""
        return {"train": self.train, "validation": self.held_out, "test": ()}[split]

    @property
    def digest(self) -> str:
        """SHA-256 of all rows in order, hexadecimal: a run goes on only with equal rows."""
        digest = sha256()
        for part in (self.train, self.held_out):
            digest.update(f"{len(part)}\n".encode())
            for row in part:
                digest.update(_text(row).encode() + b"\n")
        return digest.hexdigest()


def _rows(dataset: object, name: str) -> list[Row]:
    if isinstance(dataset, str | Path):
        file = Path(dataset).expanduser()
        return [_row(row, name, index) for index, row in enumerate(read_rows(file))]
    if isinstance(dataset, Mapping) or not isinstance(dataset, Iterable):
        raise InvalidArgumentError(
            f"{name} is a {type(dataset).__name__}; give a list of dicts, the path of a file of "
            "rows (JSON Lines, CSV, Parquet), or one split of a datasets.Dataset"
        )
    return [_row(row, name, index) for index, row in enumerate(dataset)]


def _row(row: object, name: str, index: int) -> Row:
    if not isinstance(row, Mapping):
        raise InvalidArgumentError(
            f"{name} row {index} is a {type(row).__name__}; every row must be a dict"
        )
    try:
        plain: Row = json.loads(json.dumps(dict(row), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"{name} row {index} cannot be written as JSON ({error}); keep texts, numbers, lists "
            "and dicts, and load anything else in the functions"
        ) from error
    written = json.dumps(plain, ensure_ascii=False)
    if written != writable(written):
        raise InvalidArgumentError(
            f"{name} row {index} holds a lone surrogate, which is no character, such as half of a "
            "cut emoji; take it out, as text.encode(errors='ignore').decode() does"
        )
    return plain


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, separators=(",", ":"))
