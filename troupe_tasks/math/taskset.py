"""The source of math tasks: prepared files, or the problems written by this project."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from random import Random

from troupe.data.overlap import normalised
from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task
from troupe_tasks.math.problems import SUBJECTS, split_of
from troupe_tasks.math.row import MathRow

MAX_DRAWS = 10_000
SOURCE = "troupe"


class BuiltInProblems:
    """Problems without end: task ``index`` is a function of (seed, split, index) alone."""

    def __init__(self, *, seed: int, subjects: tuple[str, ...], levels: tuple[int, ...]) -> None:
        self._seed, self._subjects, self._levels = seed, subjects, levels

    def size(self, split: Split) -> int | None:
        """None: no split ends."""
        return None

    def task(self, split: Split, index: int) -> Task:
        """The first draw of the index's own random sequence that belongs to the split.

        Subjects and levels take turns, so that any stretch of tasks has all of them.
        """
        if index < 0:
            raise InvalidArgumentError(f"Task indices count from 0, got {index}.")
        rng = Random(f"{self._seed}/{split}/{index}")
        subject = self._subjects[index % len(self._subjects)]
        level = self._levels[index // len(self._subjects) % len(self._levels)]
        for _ in range(MAX_DRAWS):
            problem = rng.choice(SUBJECTS[subject])(rng, level)
            if split_of(problem.problem) == split:
                name = f"math/{split}/{index}"
                row = MathRow(
                    id=name,
                    problem=problem.problem,
                    answer=problem.answer,
                    source=SOURCE,
                    subject=subject,
                    level=str(level),
                    program=problem.program,
                )
                return Task(name, split, index, row.model_dump_json().encode())
        raise InvalidArgumentError(
            f"No {split} problem of {subject}, level {level}, came in {MAX_DRAWS} draws; ask for "
            "more subjects or levels."
        )


class PreparedProblems(PreparedTaskset[MathRow]):
    """Problems from files that ``troupe data prepare`` wrote; the splits must not share any."""

    def __init__(self, data: Path | Mapping[Split, Path]) -> None:
        super().__init__(SplitRows(data, MathRow))
        self._refuse_overlap()

    def _refuse_overlap(self) -> None:
        if not self._rows.size("train"):
            return
        train = {_digest(row) for row in self._rows.rows("train")}
        held_out: tuple[Split, ...] = ("validation", "test")
        for split in held_out:
            shared = [row.id for row in self._rows.rows(split) if _digest(row) in train]
            if shared:
                raise InvalidArgumentError(
                    f"{len(shared)} {split} problems are also train problems, among them "
                    f"{shared[0]!r}; prepare the train file with --against <{split} file> "
                    "--drop-contaminated",
                    pointer="/task/params/data",
                )


def _digest(row: MathRow) -> bytes:
    return hashlib.blake2b(normalised(row.problem).encode(), digest_size=16).digest()
