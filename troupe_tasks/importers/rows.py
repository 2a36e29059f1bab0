"""Tasks of an environment that has rows: each row in one split, by what it says.

Rows that the environment keeps for evaluation are the test split, if most of them are no rows to
train on; otherwise a hash of a row's content says which split owns it. Equal rows are one task.
"""

import json
from collections.abc import Sequence

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task
from troupe.tasks.splits import split_of_key
from troupe_tasks.importers.world import Row

TRAIN = "train"


class RowTaskset:
    """See ``troupe.tasks.family.Taskset``."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self._name = name
        self._numbers = splits_of(rows)
        self._rows = rows

    def size(self, split: Split) -> int | None:
        """Rows of the split."""
        return len(self._numbers[split])

    def task(self, split: Split, index: int) -> Task:
        """The split's row at ``index``, in the environment's order."""
        numbers = self._numbers[split]
        if not 0 <= index < len(numbers):
            raise InvalidArgumentError(
                f"{self._name} has {len(numbers)} rows in {split}, no row {index}"
            )
        number = numbers[index]
        payload = json.dumps({"row": number, "key": self._rows[number].key}).encode()
        return Task(f"{self._name}/{split}/{index}", split, index, payload)


def splits_of(rows: Sequence[Row]) -> dict[Split, list[int]]:
    """The numbers of each split's rows; a row that equals an earlier one is left out."""
    trained = {row.key for row in rows if row.pool == TRAIN}
    own = [row.key not in trained for row in rows if row.pool != TRAIN]
    has_test = sum(own) > len(own) / 2
    found: dict[Split, list[int]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for number, row in enumerate(rows):
        if row.key in seen:
            continue
        seen.add(row.key)
        split = split_of_key(row.key)
        if has_test:
            kept: Split = "validation" if split == "validation" else "train"
            split = kept if row.pool == TRAIN else "test"
        found[split].append(number)
    for split in SPLITS:
        # A few rows may all fall into one split; each split that a job names needs one.
        if not found[split] and len(found["train"]) > 1:
            found[split].append(found["train"].pop())
    return found
