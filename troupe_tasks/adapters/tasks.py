"""Tasks of adapted environments are seeds; a seed's remainder modulo 3 says which split owns it."""

import json

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task

SEEDS_APART = 1_000_003
"""Distance between the tasks of two taskset seeds, in indices."""


class SeededTaskset:
    """Tasks without end, or ``num_tasks`` of each split."""

    def __init__(self, name: str, seed: int, num_tasks: int | None) -> None:
        self._name = name
        self._seed = seed
        self._num_tasks = num_tasks

    def size(self, split: Split) -> int | None:
        """The same for each split; None when there is no end."""
        return self._num_tasks

    def task(self, split: Split, index: int) -> Task:
        """The task whose environment seed is 3 * (index + some multiple of seed) + split number."""
        if index < 0 or (self._num_tasks is not None and index >= self._num_tasks):
            raise InvalidArgumentError(
                f"{split} has no task {index}; indices run from 0 to "
                f"{'infinity' if self._num_tasks is None else self._num_tasks - 1}"
            )
        seed = 3 * (self._seed * SEEDS_APART + index) + SPLITS.index(split)
        payload = json.dumps({"seed": seed}).encode()
        return Task(f"{self._name}/{split}/{index}", split, index, payload)
