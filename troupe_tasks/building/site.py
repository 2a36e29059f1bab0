"""The rules of the site: what a command changes in a world, or why it changes nothing."""

from collections import Counter
from dataclasses import dataclass
from itertools import product

from troupe_tasks.building.blueprint import AIR, Blueprint, Cell
from troupe_tasks.building.commands import Command


@dataclass(frozen=True, slots=True)
class Done:
    """The world after a command; ``refusal`` says in a few words why it is unchanged."""

    world: str
    refusal: str = ""


def empty(blueprint: Blueprint) -> str:
    """The world before anything is built."""
    return AIR * blueprint.num_cells


def stock_left(blueprint: Blueprint, world: str) -> dict[str, int]:
    """Blocks that are left of each material."""
    used = Counter(world)
    return {letter: count - used[letter] for letter, count in blueprint.stock.items()}


def obeyed(blueprint: Blueprint, world: str, usable: str, command: Command) -> Done:
    """``world`` after ``command`` by a builder who may use the materials ``usable``.

    All or nothing: off the site, other materials, cells that hold the other builder's blocks, too
    little stock, or a block that touches neither ground nor block refuse the whole command.
    Cleared and replaced blocks go back to the stock.
    """
    if not (blueprint.has(command.low) and blueprint.has(command.high)):
        return Done(world, "off the site")
    if command.letter != AIR and command.letter not in usable:
        return Done(world, "not your material")
    cells = _cells(command)
    places = [blueprint.index(cell) for cell in cells]
    if any(world[place] not in (AIR, *usable) for place in places):
        return Done(world, "the other builder's blocks are there")
    letters = list(world)
    for place in places:
        letters[place] = command.letter
    after = "".join(letters)
    if any(left < 0 for left in stock_left(blueprint, after).values()):
        return Done(world, "too few blocks left")
    if command.letter != AIR and blueprint.needs_support and not _holds(blueprint, world, cells):
        return Done(world, "blocks would hang in the air")
    return Done(after)


def _cells(command: Command) -> list[Cell]:
    ranges = [range(a, b + 1) for a, b in zip(command.low, command.high, strict=True)]
    return [(x, y, z) for x, y, z in product(*ranges)]


def _holds(blueprint: Blueprint, world: str, cells: list[Cell]) -> bool:
    """Whether the new blocks, a connected box, touch the ground or a block that stands."""
    new = set(cells)
    if any(cell[1] == 0 for cell in cells):
        return True
    around = (near for cell in cells for near in blueprint.beside(cell) if near not in new)
    return any(world[blueprint.index(near)] != AIR for near in around) or any(
        world[blueprint.index(cell)] != AIR for cell in cells
    )
