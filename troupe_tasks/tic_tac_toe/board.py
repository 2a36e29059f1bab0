"""The rules of Tic-Tac-Toe and its exact game values.

Owns boards and perfect play. Knows nothing of agents, rewards or text.

A board is a string of nine letters, row by row from the top: ``x``, ``o`` or ``.``. Marks alternate
and ``x`` is first, so a board alone says which mark is to move. Cell names are column letter and
row number: ``b1`` is the middle of the top row.
"""

from collections.abc import Iterator
from functools import cache

X, O, EMPTY = "x", "o", "."  # noqa: E741 (the game's own letter)
NAMES = ("a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3")
CELL_OF = {name: cell for cell, name in enumerate(NAMES)}
FIRST_BOARD = EMPTY * 9
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))

_QUARTER_TURN = (6, 3, 0, 7, 4, 1, 8, 5, 2)
_MIRROR = (2, 1, 0, 5, 4, 3, 8, 7, 6)


def other(mark: str) -> str:
    """The opponent's mark."""
    return O if mark == X else X


def to_move(board: str) -> str:
    """The mark that is to move: ``x`` when both have as many on the board."""
    return X if board.count(X) == board.count(O) else O


def free(board: str) -> list[int]:
    """Empty cells in order."""
    return [cell for cell, mark in enumerate(board) if mark == EMPTY]


def placed(board: str, cell: int) -> str:
    """The board after the mark to move is put on an empty ``cell``."""
    return board[:cell] + to_move(board) + board[cell + 1 :]


@cache
def winner(board: str) -> str | None:
    """The mark that has three in a line, or None."""
    for a, b, c in LINES:
        if board[a] != EMPTY and board[a] == board[b] == board[c]:
            return board[a]
    return None


def is_over(board: str) -> bool:
    """Someone has won or the board is full."""
    return winner(board) is not None or EMPTY not in board


@cache
def value(board: str) -> int:
    """Result for ``x`` when both play perfectly: 1 a win, 0 a draw, -1 a loss (exact minimax)."""
    if (won := winner(board)) is not None:
        return 1 if won == X else -1
    if EMPTY not in board:
        return 0
    values = [value(placed(board, cell)) for cell in free(board)]
    return max(values) if to_move(board) == X else min(values)


def value_for(mark: str, board: str) -> int:
    """``value`` as ``mark`` sees it."""
    return value(board) if mark == X else -value(board)


def best_cells(board: str) -> list[int]:
    """Cells that keep the board's value for the mark to move."""
    return [cell for cell in free(board) if value(placed(board, cell)) == value(board)]


def after(num_marks: int) -> list[str]:
    """Every board with ``num_marks`` marks that play can reach and that is not over, sorted."""
    boards = {FIRST_BOARD}
    for _ in range(num_marks):
        boards = {placed(b, cell) for b in boards if not is_over(b) for cell in free(b)}
    return sorted(board for board in boards if not is_over(board))


def canonical(board: str) -> str:
    """One name for a board, its rotations and its mirror images."""
    return min(_symmetries(board))


def _symmetries(board: str) -> Iterator[str]:
    for _ in range(4):
        board = "".join(board[cell] for cell in _QUARTER_TURN)
        yield board
        yield "".join(board[cell] for cell in _MIRROR)
