"""One blueprint: layers of cells, the materials in them, and who may place which.

Cells are numbered x first, then z, then y (the height), so a world is one text of
``width * depth * height`` letters, ``.`` for air.
"""

from collections import Counter
from functools import cached_property
from itertools import product

from pydantic import ConfigDict, Field, model_validator

from troupe.data.taskset import PreparedRow

AIR = "."
MAX_SIDE = 40
MAX_CELLS = 4_096
SPARE = 2
"""Blocks of each material that the stock has above what the blueprint needs."""

Cell = tuple[int, int, int]
"""x, y, z; y is the height."""


class Blueprint(PreparedRow):
    """What is to be built. ``layers[y][z]`` is a row of letters along x, from the ground up.

    ``needs_support``: a block is placed on the ground or beside another block, as in the game.

    Example: ``Blueprint(id="a", materials={"s": "stone"}, layers=(("ss",),))``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=200)
    materials: dict[str, str] = Field(min_length=1, max_length=26)
    layers: tuple[tuple[str, ...], ...] = Field(min_length=1, max_length=MAX_SIDE)
    needs_support: bool = True
    source: str = Field(default="troupe", min_length=1, max_length=200)
    difficulty: str = Field(default="", max_length=40)

    @property
    def compared(self) -> str:
        """What is to stand there."""
        return f"{self.materials} {self.layers}"

    @model_validator(mode="after")
    def _fits(self) -> "Blueprint":
        shapes = {(len(rows), len(row)) for rows in self.layers for row in rows}
        if len(shapes) != 1 or 0 in next(iter(shapes)):
            raise ValueError("all layers must have as many rows, and all rows as many cells")
        if self.width > MAX_SIDE or self.depth > MAX_SIDE or self.num_cells > MAX_CELLS:
            raise ValueError(f"at most {MAX_SIDE} cells a side and {MAX_CELLS} in all")
        if any(len(letter) != 1 or letter == AIR for letter in self.materials):
            raise ValueError("materials are named by one letter that is not the air's")
        if not set(self.target) <= {AIR, *self.materials} or not set(self.target) - {AIR}:
            raise ValueError("cells hold air or a listed material, and some hold a material")
        return self

    @property
    def width(self) -> int:
        """Cells along x."""
        return len(self.layers[0][0])

    @property
    def depth(self) -> int:
        """Cells along z."""
        return len(self.layers[0])

    @property
    def height(self) -> int:
        """Layers."""
        return len(self.layers)

    @property
    def num_cells(self) -> int:
        """Cells in all."""
        return self.width * self.depth * self.height

    @cached_property
    def target(self) -> str:
        """All cells, as a world."""
        return "".join(row for rows in self.layers for row in rows)

    @cached_property
    def stock(self) -> dict[str, int]:
        """Blocks of each material at first, for both builders together."""
        counts = Counter(self.target)
        return {letter: counts[letter] + SPARE for letter in sorted(self.materials)}

    def index(self, cell: Cell) -> int:
        """The place of ``cell`` in a world."""
        x, y, z = cell
        return (y * self.depth + z) * self.width + x

    def has(self, cell: Cell) -> bool:
        """Whether ``cell`` is on the site."""
        x, y, z = cell
        return 0 <= x < self.width and 0 <= y < self.height and 0 <= z < self.depth

    def cells(self) -> list[Cell]:
        """All cells in the order of a world."""
        ranges = range(self.height), range(self.depth), range(self.width)
        return [(x, y, z) for y, z, x in product(*ranges)]

    def beside(self, cell: Cell) -> list[Cell]:
        """The cells that share a face with ``cell``."""
        x, y, z = cell
        near = (
            (x - 1, y, z),
            (x + 1, y, z),
            (x, y - 1, z),
            (x, y + 1, z),
            (x, y, z - 1),
            (x, y, z + 1),
        )
        return [other for other in near if self.has(other)]

    def usable(self, seat: int, num_seats: int) -> str:
        """The letters that the builder ``seat`` may place and clear.

        One builder uses all. Of three or more materials the most needed one is for both; the
        others are dealt out in turn, so that neither can finish alone.
        """
        counts = Counter(self.target)
        ranked = sorted(self.materials, key=lambda letter: (-counts[letter], letter))
        if num_seats == 1 or len(ranked) == 1:
            return "".join(ranked)
        shared, dealt = (ranked[:1], ranked[1:]) if len(ranked) > 2 else ([], ranked)
        mine = [letter for rank, letter in enumerate(dealt) if rank % num_seats == seat]
        return "".join([*shared, *mine])
