"""The scripted builder: the largest boxes of its materials that still lack and can be placed."""

from random import Random

from troupe_tasks.building.blueprint import AIR, Blueprint, Cell
from troupe_tasks.building.commands import Command, command_text
from troupe_tasks.building.site import obeyed


def demonstration(blueprint: Blueprint, world: str, usable: str, max_commands: int) -> str:
    """Up to ``max_commands`` lines: clear what is wrong, then place what lacks, low layers first.

    With nothing to do it clears a cell of air.
    """
    lines: list[Command] = []
    while len(lines) < max_commands:
        command = _next(blueprint, world, usable)
        if command is None:
            break
        world = obeyed(blueprint, world, usable, command).world
        lines.append(command)
    return "\n".join(map(command_text, lines or [_nothing(blueprint, world)]))


def _next(blueprint: Blueprint, world: str, usable: str) -> Command | None:
    target = blueprint.target
    for cell in blueprint.cells():
        place = blueprint.index(cell)
        if world[place] in usable and world[place] != target[place]:
            return _grown(blueprint, world, usable, cell, AIR)
    for cell in blueprint.cells():
        place = blueprint.index(cell)
        if target[place] not in usable or world[place] != AIR:
            continue
        command = _grown(blueprint, world, usable, cell, target[place])
        if not obeyed(blueprint, world, usable, command).refusal:
            return command
    return None


def _grown(blueprint: Blueprint, world: str, usable: str, cell: Cell, letter: str) -> Command:
    """The box from ``cell`` on, grown along x, z and y while all of it needs the same."""
    low, high = cell, list(cell)

    def fits(corner: list[int]) -> bool:
        x, y, z = corner
        if not blueprint.has((x, y, z)):
            return False
        places = [
            blueprint.index((i, j, k))
            for i in range(low[0], x + 1)
            for j in range(low[1], y + 1)
            for k in range(low[2], z + 1)
        ]
        if letter == AIR:
            target = blueprint.target
            return all(world[p] in usable and world[p] != target[p] for p in places)
        return all(blueprint.target[p] == letter and world[p] == AIR for p in places)

    for axis in (0, 2, 1):
        while True:
            corner = list(high)
            corner[axis] += 1
            if not fits(corner):
                break
            high = corner
    return Command(low, (high[0], high[1], high[2]), letter)


def _nothing(blueprint: Blueprint, world: str) -> Command:
    cell = next((c for c in blueprint.cells() if world[blueprint.index(c)] == AIR), (0, 0, 0))
    return Command(cell, cell, AIR)


def random_commands(blueprint: Blueprint, usable: str, max_commands: int, rng: Random) -> str:
    """Random boxes of random materials on the site."""
    sides = blueprint.width, blueprint.height, blueprint.depth
    lines: list[str] = []
    for _ in range(rng.randint(1, max_commands)):
        corners = [sorted((rng.randrange(side), rng.randrange(side))) for side in sides]
        low, high = ((c[n] for c in corners) for n in (0, 1))
        x, y, z = low
        x2, y2, z2 = high
        lines.append(command_text(Command((x, y, z), (x2, y2, z2), rng.choice([*usable, AIR]))))
    return "\n".join(lines)
