"""Sudoku grids as text, row by row with ``.`` for an empty cell: rules, solver and canonical form.

Knows nothing of agents, rewards or prompts. ``size`` is 4 or 9, a cell is its index in the text.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations, product
from math import isqrt
from operator import itemgetter
from random import Random

EMPTY = "."


def size_of(grid: str) -> int:
    """Rows of the grid, which are its columns and its digits."""
    return isqrt(len(grid))


def name(size: int, cell: int) -> str:
    """The cell's name: column letter and row number, e.g. ``b3``."""
    return f"{chr(ord('a') + cell % size)}{cell // size + 1}"


@lru_cache(maxsize=4)
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """For each cell, the cells that may not hold the same digit."""
    box = isqrt(size)

    def units(cell: int) -> tuple[int, int, int]:
        row, column = divmod(cell, size)
        return row, column, row // box * box + column // box

    peers_of: list[tuple[int, ...]] = []
    for cell in range(size**2):
        mine = units(cell)
        shares = (any(a == b for a, b in zip(mine, units(c), strict=True)) for c in range(size**2))
        peers_of.append(tuple(c for c, is_shared in enumerate(shares) if is_shared and c != cell))
    return tuple(peers_of)


def clashes(grid: str) -> list[int]:
    """Filled cells whose digit stands once more in their row, column or box."""
    near = peers(size_of(grid))
    return [
        cell
        for cell, digit in enumerate(grid)
        if digit != EMPTY and any(grid[peer] == digit for peer in near[cell])
    ]


def solutions(grid: str, rng: Random | None = None) -> Iterator[str]:
    """All complete grids that keep the digits of ``grid``, in a fixed or a random order.

    Depth first; the cell with the fewest candidates is filled next.
    """
    if clashes(grid):
        return
    size = size_of(grid)
    near = peers(size)
    cells: list[int] = [0 if digit == EMPTY else 1 << int(digit) for digit in grid]
    everything = (1 << (size + 1)) - 2

    def candidates(cell: int) -> int:
        taken = 0
        for peer in near[cell]:
            taken |= cells[peer]
        return everything & ~taken

    def fill() -> Iterator[str]:
        best, least = -1, everything
        for cell, value in enumerate(cells):
            if not value:
                open_digits = candidates(cell)
                if best < 0 or open_digits.bit_count() < least.bit_count():
                    best, least = cell, open_digits
                    if open_digits & (open_digits - 1) == 0:
                        break
        if best < 0:
            yield "".join(str(value.bit_length() - 1) for value in cells)
            return
        digits = [digit for digit in range(1, size + 1) if least >> digit & 1]
        if rng:
            rng.shuffle(digits)
        for digit in digits:
            cells[best] = 1 << digit
            yield from fill()
        cells[best] = 0

    yield from fill()


def is_unique(grid: str) -> bool:
    """Whether exactly one complete grid keeps the digits of ``grid``."""
    search = solutions(grid)
    return next(search, None) is not None and next(search, None) is None


def canonical(grid: str) -> str:
    """One text for all twins of ``grid``: renamed digits and moved rows and columns.

    4x4: every change that keeps Sudoku's rules (rows and columns within and across bands,
    mirror). 9x9 has 3,359,232 of these, so there only turns and mirror images count.
    """
    return min(_renamed("".join(pick(grid))) for pick in _orders(size_of(grid)))


def _renamed(grid: str) -> str:
    """Digits in the order of their first appearance."""
    digits = "".join(dict.fromkeys(grid.replace(EMPTY, "")))
    return grid.translate(str.maketrans(digits, "123456789"[: len(digits)]))


@lru_cache(maxsize=4)
def _orders(size: int) -> tuple["itemgetter[tuple[str, ...]]", ...]:
    lines: list[tuple[int, ...]]
    if size == 4:
        swaps = list(permutations((0, 1)))
        lines = [
            tuple(
                2 * band + line
                for band, inside in zip(bands, insides, strict=True)
                for line in inside
            )
            for bands in swaps
            for insides in product(swaps, repeat=2)
        ]
    else:
        lines = [tuple(range(size)), tuple(reversed(range(size)))]
    straight = [
        tuple(row * size + column for row in rows for column in columns)
        for rows in lines
        for columns in lines
    ]
    mirrored = [
        tuple(column * size + row for row in rows for column in columns)
        for rows in lines
        for columns in lines
    ]
    return tuple(itemgetter(*order) for order in (*straight, *mirrored))
