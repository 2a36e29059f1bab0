"""Queens on a square board as text: one letter per file, ``.`` for a file without a queen.

Row 1 is ``a``, row 2 is ``b`` and so on, so ``b.da`` has queens on a2, c4 and d1 of a 4x4 board.
An instance is ``given/closed``: the given queens in this notation, and the closed squares as
names joined by ``,``. Knows nothing of agents, rewards or prompts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

NONE = "."
MAX_SIZE = 12
"""Larger boards have too many solutions to hold: 73,712 on 13 files, 365,596 on 14."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Given queens as a board, and closed squares as (file, row) from 0."""

    given: str
    closed: frozenset[tuple[int, int]]

    @property
    def size(self) -> int:
        """Squares per side."""
        return len(self.given)


@lru_cache(maxsize=4096)
def read_instance(text: str) -> Instance:
    """The instance that ``write_instance`` wrote.

    Raises:
        ValueError: it is none, or larger than ``MAX_SIZE``.
    """
    given, _, closed = text.partition("/")
    if len(given) > MAX_SIZE:
        raise ValueError(f"a board of {len(given)} files; {MAX_SIZE} at most")
    return Instance(given, frozenset(square(name) for name in closed.split(",") if name))


def write_instance(instance: Instance) -> str:
    """``given/closed``, e.g. ``.c../a1,d2``."""
    return f"{instance.given}/{','.join(name(*place) for place in sorted(instance.closed))}"


def square(name: str) -> tuple[int, int]:
    """(file, row) from 0 of a name such as ``b4``."""
    return ord(name[0]) - ord("a"), int(name[1:]) - 1


def name(file: int, row: int) -> str:
    """File letter and row number, e.g. ``b4``."""
    return f"{chr(ord('a') + file)}{row + 1}"


def queens(board: str) -> list[tuple[int, int]]:
    """(file, row) of each queen."""
    return [(file, ord(row) - ord("a")) for file, row in enumerate(board) if row != NONE]


def with_queen(board: str, file: int, row: int) -> str:
    """The board with its queen of ``file`` on ``row``."""
    return board[:file] + chr(ord("a") + row) + board[file + 1 :]


def attacked(board: str) -> list[tuple[int, int]]:
    """Queens that attack another queen."""
    queens_hit: set[tuple[int, int]] = set()
    for queen, other in combinations(queens(board), 2):
        if queen[1] == other[1] or abs(queen[0] - other[0]) == abs(queen[1] - other[1]):
            queens_hit |= {queen, other}
    return sorted(queens_hit)


def is_solved(board: str) -> bool:
    """Whether each file has a queen and none attacks another."""
    return NONE not in board and not attacked(board)


def bits(board: str) -> int:
    """The queens as a bit board: bit ``file * size + row``."""
    return sum(1 << (file * len(board) + row) for file, row in queens(board))


def board_of(size: int, queen_bits: int) -> str:
    """The board of a bit board that has a queen in each file."""
    one_file = (1 << size) - 1
    rows = [(queen_bits >> file * size & one_file).bit_length() - 1 for file in range(size)]
    return "".join(chr(ord("a") + row) for row in rows)


@lru_cache(maxsize=16)
def all_solutions(size: int) -> tuple[int, ...]:
    """Every way to place ``size`` queens that do not attack each other, as bit boards."""
    boards: list[int] = []
    everything = (1 << size) - 1

    def place(file: int, board: int, rows: int, rising: int, falling: int) -> None:
        if file == size:
            boards.append(board)
            return
        free = everything & ~(rows | rising | falling)
        while free:
            row = free & -free
            free ^= row
            extended = board | row << file * size
            place(file + 1, extended, rows | row, (rising | row) << 1, (falling | row) >> 1)

    place(0, 0, 0, 0, 0)
    return tuple(boards)


@lru_cache(maxsize=256)
def completions(instance: Instance) -> tuple[int, ...]:
    """The solutions that keep the given queens and leave the closed squares empty."""
    given = bits(instance.given)
    closed = sum(1 << (file * instance.size + row) for file, row in instance.closed)
    return tuple(s for s in all_solutions(instance.size) if s & given == given and not s & closed)


def nearest(instance: Instance, board: str) -> str:
    """The first of the completions that share the most queens with ``board``."""
    mine = bits(board)
    best = max(completions(instance), key=lambda solution: (solution & mine).bit_count())
    return board_of(instance.size, best)


def symmetries(instance: Instance) -> Iterator[Instance]:
    """The instance turned and mirrored, in all eight ways."""
    size = instance.size
    given, closed = queens(instance.given), list(instance.closed)
    for _ in range(4):
        given = [(row, size - 1 - file) for file, row in given]
        closed = [(row, size - 1 - file) for file, row in closed]
        yield _instance(size, given, closed)
        yield _instance(
            size,
            [(size - 1 - file, row) for file, row in given],
            [(size - 1 - file, row) for file, row in closed],
        )


def _instance(size: int, given: list[tuple[int, int]], closed: list[tuple[int, int]]) -> Instance:
    board = NONE * size
    for file, row in given:
        board = with_queen(board, file, row)
    return Instance(board, frozenset(closed))
