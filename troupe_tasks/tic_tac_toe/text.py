"""The prompts of Tic-Tac-Toe: what a seat reads when it is to move, and how its answer is parsed.

Two styles say the same facts. ``compact`` is one line that a tiny made-here model can learn;
``verbose`` explains the rules to a general instruction-tuned model.
"""

import re
from typing import Literal

from troupe.tasks.family import Message, Observation
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe.board import CELL_OF, EMPTY, NAMES
from troupe_tasks.tic_tac_toe.state import State

Style = Literal["compact", "verbose"]

KEYWORD = "play"
WORDS = (boards.X, boards.O, "free", "you", "last", KEYWORD, *NAMES)
"""Every word of the compact style."""

_MOVE = re.compile(rf"\b{KEYWORD}\b[\s:(\[]*([a-cA-C][1-3])\b[\])]*")
_RULES = (
    "You play Tic-Tac-Toe on a board of three columns (a, b, c) and three rows (1 on top). Marks "
    "are put on free cells in turn; three of one mark in a row, column or diagonal win, and a full "
    "board without that is a draw. A move to a cell that is not free, or an answer without a move, "
    "loses the game at once. Think briefly, then end with one move, for example: play b2"
)


def read_move(text: str) -> tuple[int | None, bool]:
    """The cell of the last ``play ...`` in ``text``, and whether nothing follows it.

    Reasoning may stand before it. Never fails: without a move the cell is None.

    Example: ``read_move("the centre is free: play b2") == (4, True)``.
    """
    matches = list(_MOVE.finditer(text))
    if not matches:
        return None, False
    ends_there = not text[matches[-1].end() :].strip()
    return CELL_OF[matches[-1].group(1).lower()], ends_there


def answer(cell: int) -> str:
    """The text that ``read_move`` reads as ``cell``."""
    return f"{KEYWORD} {NAMES[cell]}"


def observation(state: State, seat: str, style: Style) -> Observation:
    """The prompt of ``seat``, which is to move."""
    mark = state.mark_of(seat)
    if style == "compact":
        return (Message("user", _compact(state, mark)),)
    return Message("system", _RULES), Message("user", _verbose(state, mark))


def drawing(board: str) -> str:
    """Three lines of three marks."""
    return "\n".join(" ".join(board[row : row + 3]) for row in (0, 3, 6))


def _compact(state: State, mark: str) -> str:
    parts = [boards.X, *_cells(state.board, boards.X), boards.O, *_cells(state.board, boards.O)]
    if state.last is not None:
        parts += ["last", NAMES[state.last]]
    return " ".join([*parts, "free", *_cells(state.board, EMPTY), "you", mark])


def _verbose(state: State, mark: str) -> str:
    lines = [
        "Board, row 1 on top, column a on the left:",
        drawing(state.board),
        f"Free cells: {' '.join(_cells(state.board, EMPTY))}",
    ]
    if state.last is not None:
        lines.append(f"The opponent's last move: {NAMES[state.last]}")
    return "\n".join([*lines, f"You play {mark}. Your move?"])


def _cells(board: str, mark: str) -> list[str]:
    return [NAMES[cell] for cell, occupant in enumerate(board) if occupant == mark]
