"""The map of one Plan-Path instance: cells, moves, true distances and seeded generation.

Owns geometry and the split of maps. Knows nothing of agents, rewards or text.

Cells are ``(row, column)`` from the top left; their names are column letter and row number, so
``b3`` is the second column of the third row from the top.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key

Cell = tuple[int, int]

MOVES: Mapping[str, Cell] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
"""Each move letter with its (row, column) offset."""

FREE, WALL = ".", "#"


@dataclass(frozen=True, slots=True)
class Grid:
    """A square map, one string of ``.`` and ``#`` per row.

    Example: ``Grid(("..", "#."))`` has one wall, at ``a2``.
    """

    rows: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of rows, which is the number of columns."""
        return len(self.rows)

    def is_free(self, cell: Cell) -> bool:
        """Whether ``cell`` lies on the map and is no wall."""
        row, column = cell
        inside = 0 <= row < self.size and 0 <= column < self.size
        return inside and self.rows[row][column] == FREE

    def cells(self, kind: str) -> list[Cell]:
        """All cells of one kind (``.`` or ``#``), row by row."""
        return [(r, c) for r, row in enumerate(self.rows) for c, k in enumerate(row) if k == kind]

    def exits(self, cell: Cell) -> list[str]:
        """Move letters that lead from ``cell`` to a free cell, in the order of ``MOVES``."""
        return [move for move in MOVES if self.is_free(moved(cell, move))]


@dataclass(frozen=True, slots=True)
class Instance:
    """A map with a start and a goal that is reachable from it."""

    grid: Grid
    start: Cell
    goal: Cell


@dataclass(frozen=True, slots=True)
class Walk:
    """What a move list does: ``cells`` visited with the first one, ``blocked`` moves from 1."""

    cells: tuple[Cell, ...]
    blocked: tuple[int, ...]

    @property
    def end(self) -> Cell:
        """Where the walk ends."""
        return self.cells[-1]


def moved(cell: Cell, move: str) -> Cell:
    """The cell one ``move`` away, which may be a wall or off the map."""
    d_row, d_column = MOVES[move]
    return cell[0] + d_row, cell[1] + d_column


def name(cell: Cell) -> str:
    """The cell's name, e.g. ``b3`` for ``(2, 1)``."""
    return f"{chr(ord('a') + cell[1])}{cell[0] + 1}"


def walk(grid: Grid, start: Cell, goal: Cell, moves: str) -> Walk:
    """Follow ``moves``: an illegal one stays in place, and the walk stops at the goal."""
    cells = [start]
    blocked: list[int] = []
    for number, move in enumerate(moves, start=1):
        if cells[-1] == goal:
            break
        target = moved(cells[-1], move)
        if grid.is_free(target):
            cells.append(target)
        else:
            blocked.append(number)
    return Walk(tuple(cells), tuple(blocked))


@lru_cache(maxsize=4096)
def distances(grid: Grid, goal: Cell) -> Mapping[Cell, int]:
    """True number of moves to ``goal`` from every cell that can reach it (breadth first)."""
    steps = {goal: 0}
    frontier = deque([goal])
    while frontier:
        cell = frontier.popleft()
        for move in grid.exits(cell):
            neighbour = moved(cell, move)
            if neighbour not in steps:
                steps[neighbour] = steps[cell] + 1
                frontier.append(neighbour)
    return steps


def way(grid: Grid, start: Cell, target: str, radius: int) -> str | None:
    """The first of the shortest move lists to the cell named ``target``, in the order of ``MOVES``.

    None when it is a wall, off the map, or more than ``radius`` moves away.
    """
    cells = {name(cell): cell for cell in grid.cells(FREE)}
    if target not in cells:
        return None
    to_target = distances(grid, cells[target])
    if to_target.get(start, radius + 1) > radius:
        return None
    cell, moves = start, ""
    while cell != cells[target]:
        steps = (m for m in grid.exits(cell) if to_target[moved(cell, m)] < to_target[cell])
        moves += next(steps)
        cell = moved(cell, moves[-1])
    return moves


def shortest_moves(grid: Grid, start: Cell, goal: Cell, rng: Random) -> str:
    """One shortest move list from ``start`` to ``goal``, drawn at random among equals."""
    to_goal = distances(grid, goal)
    cell, moves = start, ""
    while cell != goal:
        nearer = [m for m in grid.exits(cell) if to_goal[moved(cell, m)] < to_goal[cell]]
        moves += rng.choice(nearer)
        cell = moved(cell, moves[-1])
    return moves


def split_of(grid: Grid) -> Split:
    """The one split that owns ``grid`` and its seven rotations and mirror images.

    A function of the map alone, so no map, turned or mirrored, is ever in two splits.
    """
    return split_of_key(split_key(grid))


def split_key(grid: Grid) -> str:
    """One text for ``grid`` and its seven rotations and mirror images."""
    return min("/".join(rows) for rows in _symmetries(grid.rows))


def draw(rng: Random, size: int, num_walls: int, min_distance: int) -> Instance | None:
    """One solvable candidate, or None when nothing on its map is ``min_distance`` moves apart."""
    cells = [(row, column) for row in range(size) for column in range(size)]
    walls = set(rng.sample(cells, num_walls))
    grid = Grid(
        tuple(
            "".join(WALL if (row, column) in walls else FREE for column in range(size))
            for row in range(size)
        )
    )
    goal = rng.choice(grid.cells(FREE))
    far = [cell for cell, distance in distances(grid, goal).items() if distance >= min_distance]
    return Instance(grid, rng.choice(far), goal) if far else None


def _symmetries(rows: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for _ in range(4):
        yield rows
        yield rows[::-1]
        rows = tuple("".join(column) for column in zip(*rows[::-1], strict=True))
