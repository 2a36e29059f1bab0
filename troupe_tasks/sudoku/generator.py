"""Draws Sudoku tasks: a random complete grid, dug out while its solution stays the only one."""

from random import Random

from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.sudoku.grid import EMPTY, canonical, is_unique, solutions


def draw(rng: Random, split: Split, *, size: int, holes: int) -> str | None:
    """``givens/solution``, or None when it is another split's or cannot lose so many digits."""
    complete = next(solutions(EMPTY * size**2, rng))
    if size > 4 and split_of(complete, complete) != split:
        return None
    givens = _dug(rng, complete, holes)
    if givens is None or split_of(givens, complete) != split:
        return None
    return f"{givens}/{complete}"


def split_of(givens: str, complete: str) -> Split:
    """The one split that owns a puzzle and its twins.

    9x9 goes by the complete grid, so not even other holes in one grid are in two splits. 4x4 has
    two complete grids up to symmetry, so there it goes by the givens.
    """
    return split_of_key(split_key(givens, complete))


def split_key(givens: str, complete: str) -> str:
    """One text for a puzzle and its twins."""
    return canonical(givens if len(givens) == 16 else complete)


def _dug(rng: Random, complete: str, holes: int) -> str | None:
    """Digits taken away in a random order, each only if the solution stays unique."""
    grid, num_holes = complete, 0
    for cell in rng.sample(range(len(complete)), len(complete)):
        if num_holes == holes:
            break
        dug = grid[:cell] + EMPTY + grid[cell + 1 :]
        if is_unique(dug):
            grid, num_holes = dug, num_holes + 1
    return grid if num_holes == holes else None
