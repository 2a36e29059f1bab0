"""Math tasks without prepared files: the problems written by this project."""

from random import Random

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
