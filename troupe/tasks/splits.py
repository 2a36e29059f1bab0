"""Assigns instances to splits, and draws tasks until one belongs to the split.

The split is a function of the instance alone, so no instance is in two splits, whatever the seed.
Never interprets an instance.
"""

import hashlib
from collections.abc import Callable
from random import Random

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task

MAX_DRAWS = 10_000
"""Candidates drawn for one task before its parameters count as unsatisfiable."""

_SPLIT_OF_BUCKET: tuple[Split, ...] = ("train",) * 8 + ("validation", "test")

Draw = Callable[[Random, Split], bytes | None]
"""Draws one candidate: a payload, or None if it is of another split or breaks the parameters."""


def split_of_key(key: str) -> Split:
    """The one split that owns all instances with this canonical ``key``: 8 to 1 to 1."""
    digest = hashlib.sha256(key.encode()).digest()
    return _SPLIT_OF_BUCKET[int.from_bytes(digest[:8]) % len(_SPLIT_OF_BUCKET)]


class DrawnTaskset:
    """Infinite tasks in each split: task ``index`` is a function of (seed, split, index).

    Args:
        name: The family's name, the prefix of task ids.
        seed: Seed of the generator.
        draw: Draws one candidate; called until it returns a payload.
        hint: What to change when nothing is found, e.g. ``"use a larger map"``.
        max_draws: Maximum candidates for one task.
    """

    def __init__(
        self, name: str, seed: int, draw: Draw, *, hint: str, max_draws: int = MAX_DRAWS
    ) -> None:
        self._name = name
        self._seed = seed
        self._draw = draw
        self._hint = hint
        self._max_draws = max_draws

    def size(self, split: Split) -> int | None:
        """None: every split is infinite."""
        return None

    def task(self, split: Split, index: int) -> Task:
        """The first candidate of the index's random sequence that belongs to the split."""
        if index < 0:
            raise InvalidArgumentError(f"Task indices count from 0, got {index}.")
        rng = Random(f"{self._seed}/{split}/{index}")
        for _ in range(self._max_draws):
            payload = self._draw(rng, split)
            if payload is not None:
                return Task(f"{self._name}/{split}/{index}", split, index, payload)
        raise InvalidArgumentError(
            f"No {split} task of '{self._name}' occurred in {self._max_draws} draws; {self._hint}."
        )
