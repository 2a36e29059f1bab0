"""Draws Eight Queens tasks: a solution, most of its queens taken away, and squares closed."""

from random import Random

from troupe.tasks.family import SPLITS, Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.eight_queens.squares import (
    NONE,
    Instance,
    all_solutions,
    board_of,
    queens,
    symmetries,
    write_instance,
)

MIN_BOARDS = 10
"""Different boards that each split must have."""

_NUM_LOOKED_AT = 3000


def draw(rng: Random, split: Split, *, size: int, given: int, closed: int) -> str | None:
    """One candidate, or None when it is another split's."""
    instance = _candidate(rng, size, given, closed)
    return write_instance(instance) if split_of(instance) == split else None


def has_enough_boards(size: int, given: int, closed: int) -> bool:
    """Whether ``MIN_BOARDS`` boards of each split come up among a fixed number of candidates."""
    rng = Random(f"{size}/{given}/{closed}")
    boards_of: dict[Split, set[Instance]] = {split: set() for split in SPLITS}
    for _ in range(_NUM_LOOKED_AT):
        instance = _candidate(rng, size, given, closed)
        boards_of[split_of(instance)].add(instance)
        if all(len(boards) >= MIN_BOARDS for boards in boards_of.values()):
            return True
    return False


def split_of(instance: Instance) -> Split:
    """The one split that owns ``instance``, however turned or mirrored."""
    return split_of_key(split_key(instance))


def split_key(instance: Instance) -> str:
    """One text for ``instance``, however turned or mirrored."""
    return min(write_instance(twin) for twin in symmetries(instance))


def _candidate(rng: Random, size: int, given: int, closed: int) -> Instance:
    """Some queens of a solution, and closed squares that the solution does not need.

    Only squares are closed where a queen could otherwise come to stand: ``most_closed`` of them.
    """
    solution = board_of(size, rng.choice(all_solutions(size)))
    given_files = set(rng.sample(range(size), given))
    board = "".join(row if file in given_files else NONE for file, row in enumerate(solution))
    taken_rows = {row for _, row in queens(board)}
    rows = [row for row in range(size) if row not in taken_rows]
    needed = set(queens(solution))
    files = [file for file in range(size) if file not in given_files]
    spare = [(file, row) for file in files for row in rows if (file, row) not in needed]
    return Instance(board, frozenset(rng.sample(spare, closed)))


def most_closed(size: int, given: int) -> int:
    """Squares that can be closed at most: open files times free rows, less one queen each."""
    return (size - given) * (size - given - 1)
