"""Writing tasks without prepared files: the texts written by this project."""

from collections.abc import Sequence

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task
from troupe_tasks.writing.row import WritingRow


class BuiltInTexts:
    """A few texts of this project: most of them train, the rest shared out between the others."""

    def __init__(self, name: str, rows: Sequence[WritingRow]) -> None:
        held_out = max(1, len(rows) // 6)
        self._name = name
        self._rows: dict[Split, Sequence[WritingRow]] = {
            "train": rows[: -2 * held_out],
            "validation": rows[-2 * held_out : -held_out],
            "test": rows[-held_out:],
        }

    def size(self, split: Split) -> int | None:
        """Number of texts in the split."""
        return len(self._rows[split])

    def task(self, split: Split, index: int) -> Task:
        """Text ``index`` of the split."""
        rows = self._rows[split]
        if not 0 <= index < len(rows):
            raise InvalidArgumentError(
                f"The built-in {split} split of {self._name} has {len(rows)} texts; there is no "
                f"text {index}. Prepared data has more: set task.params.data."
            )
        return Task(
            f"{self._name}/{split}/{index}", split, index, rows[index].model_dump_json().encode()
        )
