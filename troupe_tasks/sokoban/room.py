"""A Sokoban room and a position in it, as bit boards, read from and written to map text.

Owns geometry and the rule of one move. Maps use the usual letters: ``#`` wall, ``-`` floor,
``.`` goal, ``$`` box, ``@`` player, ``*`` box on goal, ``+`` player on goal; rows are joined by
``/``. Cell ``row * size + column`` is one bit. The border is wall, so a shifted bit board never
runs over the edge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

MOVES = ("U", "D", "L", "R")
MAX_SIZE = 12
MAX_BOXES = 6
"""What is left to push is a matching of boxes and goals, whose cost doubles with each goal."""


@dataclass(frozen=True, slots=True)
class Room:
    """What never changes: ``floor`` holds every cell that is no wall, ``goals`` some of them."""

    size: int
    floor: int
    goals: int

    @property
    def offsets(self) -> Mapping[str, int]:
        """Each move letter with its offset in cells."""
        return offsets(self.size)


@dataclass(frozen=True, slots=True)
class Position:
    """Where the boxes are (a bit board) and where the player stands (a cell)."""

    boxes: int
    player: int


@lru_cache(maxsize=16)
def offsets(size: int) -> Mapping[str, int]:
    """Each move letter with its offset in cells."""
    return {"U": -size, "D": size, "L": -1, "R": 1}


def name(size: int, cell: int) -> str:
    """The cell's name: column letter and row number, e.g. ``b3``."""
    return f"{chr(ord('a') + cell % size)}{cell // size + 1}"


def cells(board: int) -> Iterator[int]:
    """The cells of a bit board, from the top left."""
    while board:
        low = board & -board
        yield low.bit_length() - 1
        board ^= low


@lru_cache(maxsize=8192)
def read_map(text: str) -> tuple[Room, Position]:
    """The room and position of a map.

    Raises:
        ValueError: it has more than ``MAX_SIZE`` rows, or more than ``MAX_BOXES`` boxes or goals.
        KeyError: it has letters that mean nothing.
    """
    rows = text.split("/")
    letters = "".join(rows)
    boards = dict.fromkeys("#-.$@*+", 0)
    for cell, letter in enumerate(letters):
        boards[letter] |= 1 << cell
    floor = ((1 << len(letters)) - 1) & ~boards["#"]
    goals = boards["."] | boards["*"] | boards["+"]
    boxes = boards["$"] | boards["*"]
    if len(rows) > MAX_SIZE or max(goals.bit_count(), boxes.bit_count()) > MAX_BOXES:
        raise ValueError(f"a map of more than {MAX_SIZE} rows or {MAX_BOXES} boxes or goals")
    player = (boards["@"] | boards["+"]).bit_length() - 1
    return Room(len(rows), floor, goals), Position(boxes, player)


def write_map(room: Room, position: Position) -> str:
    """The map that ``read_map`` reads."""
    letters: list[str] = []
    for cell in range(room.size**2):
        bit = 1 << cell
        is_goal = bool(room.goals & bit)
        if position.boxes & bit:
            letters.append("*" if is_goal else "$")
        elif position.player == cell:
            letters.append("+" if is_goal else "@")
        elif room.floor & bit:
            letters.append("." if is_goal else "-")
        else:
            letters.append("#")
    size = room.size
    return "/".join("".join(letters[row * size : (row + 1) * size]) for row in range(size))


def moved(room: Room, position: Position, move: str) -> Position | None:
    """The position after one move, or None when a wall or a stuck box is in the way."""
    offset = room.offsets[move]
    target = position.player + offset
    if not room.floor >> target & 1:
        return None
    if not position.boxes >> target & 1:
        return Position(position.boxes, target)
    behind = 1 << (target + offset)
    if not room.floor & behind or position.boxes & behind:
        return None
    return Position(position.boxes & ~(1 << target) | behind, target)


def spread(size: int, board: int, free: int) -> int:
    """``board`` and the free cells next to it."""
    return (board | board << 1 | board >> 1 | board << size | board >> size) & free


def reach(size: int, start: int, free: int) -> int:
    """All cells that a walk over ``free`` cells reaches from the bit board ``start``."""
    area = start
    while (grown := spread(size, area, free)) != area:
        area = grown
    return area
