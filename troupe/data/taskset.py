"""Tasks of prepared rows: one for each row, in the order of the files.

A payload is the row itself, or a key that names it where a state would grow too large.
"""

import hashlib
from typing import Generic, TypeVar

from pydantic import BaseModel

from troupe.data.prepared import SplitRows
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task


class PreparedRow(BaseModel):
    """What every prepared row has: an ``id``, which names its task."""

    id: str

    @property
    def compared(self) -> str:
        """What a train row and a held-out row must not share: all but the id, unless overridden."""
        return self.model_dump_json(exclude={"id"})


RowT = TypeVar("RowT", bound=PreparedRow)


class PreparedTaskset(Generic[RowT]):
    """Finite splits; a payload is the row as JSON, or with ``by_key`` what ``row_of_key`` reads.

    Raises InvalidArgumentError when a validation or test row is also a train row.

    Example: ``PreparedTaskset(SplitRows(Path("data/spider"), SqlRow), by_key=True)``.
    """

    def __init__(self, rows: SplitRows[RowT], *, by_key: bool = False) -> None:
        rows.refuse_shared(lambda row: row.compared)
        self._rows = rows
        self._by_key = by_key

    def size(self, split: Split) -> int | None:
        """Number of rows in the split, 0 when no file was given for it."""
        return self._rows.size(split)

    def task(self, split: Split, index: int) -> Task:
        """Row ``index`` of the split's file."""
        row = self._rows.row(split, index)
        payload = f"{split}:{index}:{_digest(row)}" if self._by_key else row.model_dump_json()
        return Task(row.id, split, index, payload.encode())


def row_of_key(rows: SplitRows[RowT], key: str) -> RowT:
    """The row that a task's key names; raises InvalidArgumentError when it is another one."""
    name, _, rest = key.partition(":")
    index, _, digest = rest.partition(":")
    named: Split | None = next((split for split in SPLITS if split == name), None)
    if named is None or not index.isdecimal():
        raise InvalidArgumentError(f"{key[:80]!r} names no prepared row")
    row = rows.row(named, int(index))
    if _digest(row) != digest:
        raise InvalidArgumentError(
            f"{name} row {index} ({row.id!r}) differs between this process and the one that began "
            "the episode; give both the same files"
        )
    return row


def _digest(row: PreparedRow) -> str:
    return hashlib.sha256(row.model_dump_json().encode()).hexdigest()[:16]
