"""Draws Sokoban tasks by playing backwards, so every task is solvable by construction.

From the solved room, the positions that pulling can lead to are found breadth first, and depth
is the exact least number of pushes. Where the room is too rich to go that deep, pulling goes on
at random, and the solver's lower bound says how far it has come.
"""

from collections.abc import Iterator
from random import Random

from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.sokoban.deadlock import pushes_left
from troupe_tasks.sokoban.room import Position, Room, cells, reach, write_map

MAX_POSITIONS = 600
"""Positions found by pulling in one room, at most: the generator's time is bounded by it."""


def draw(
    rng: Random, split: Split, *, size: int, num_boxes: int, wall_share: float, min_pushes: int
) -> str | None:
    """One candidate map, or None when the room is another split's or has no far position."""
    room = _draw_room(rng, size, num_boxes, wall_share)
    if room is None or split_of(room) != split:
        return None
    positions = list(pulled(room))
    far = [(boxes, area) for boxes, area, pushes in positions if pushes >= min_pushes]
    if not far and len(positions) < MAX_POSITIONS:
        return None
    chosen = rng.choice(far) if far else _pulled_on(rng, room, positions[-1][:2], min_pushes)
    if chosen is None:
        return None
    boxes, area = chosen
    return write_map(room, Position(boxes, rng.choice(list(cells(area)))))


def split_of(room: Room) -> Split:
    """The one split that owns the walls and goals of ``room``, however turned or mirrored.

    Boxes and player do not count, so no room of the tests is trained in from elsewhere.
    """
    return split_of_key(split_key(room))


def split_key(room: Room) -> str:
    """One text for the walls and goals of ``room``, however turned or mirrored."""
    return min(_symmetries(room))


def pulled(room: Room) -> Iterator[tuple[int, int, int]]:
    """Positions as (boxes, area that the player can walk, exact least pushes), nearest first."""
    size = room.size
    free = room.floor & ~room.goals
    layer: list[tuple[int, int]] = []
    while free:
        area = reach(size, free & -free, free)
        layer.append((room.goals, area))
        free &= ~area
    positions = set(layer)
    depth = 0
    while layer:
        for boxes, area in layer:
            yield boxes, area, depth
        following: list[tuple[int, int]] = []
        for boxes, area in layer:
            for position in _pulls(room, boxes, area):
                if position not in positions and len(positions) < MAX_POSITIONS:
                    positions.add(position)
                    following.append(position)
        layer, depth = following, depth + 1


def _pulled_on(
    rng: Random, room: Room, position: tuple[int, int], min_pushes: int
) -> tuple[int, int] | None:
    """A position whose lower bound is ``min_pushes``, by random pulls that favour the far ones."""
    for _ in range(4 * min_pushes):
        pulls = list(_pulls(room, *position))
        if not pulls:
            return None
        sample = rng.choices(pulls, k=3)
        position = max(sample, key=lambda after: pushes_left(room, after[0]) or 0)
        if (pushes_left(room, position[0]) or 0) >= min_pushes:
            return position
    return None


def _pulls(room: Room, boxes: int, area: int) -> Iterator[tuple[int, int]]:
    free = room.floor & ~boxes
    for box in cells(boxes):
        for offset in room.offsets.values():
            player = box + offset
            if area >> player & 1 and free >> (player + offset) & 1:
                after = boxes & ~(1 << box) | 1 << player
                yield after, reach(room.size, 1 << (player + offset), room.floor & ~after)


def _draw_room(rng: Random, size: int, num_boxes: int, wall_share: float) -> Room | None:
    """Inner walls at random and goals on what is left; pockets cut off by walls become wall.

    None when the pockets are more than a quarter of the open cells, or leave no room for a push.
    """
    inner = [row * size + column for row in range(1, size - 1) for column in range(1, size - 1)]
    walls = set(rng.sample(inner, round(wall_share * len(inner))))
    open_cells = sum(1 << cell for cell in inner if cell not in walls)
    floor, rest = 0, open_cells
    while rest:
        area = reach(size, rest & -rest, rest)
        rest &= ~area
        floor = max(floor, area, key=int.bit_count)
    num_cells = floor.bit_count()
    if num_cells < num_boxes + 2 or 4 * num_cells < 3 * open_cells.bit_count():
        return None
    goals = sum(1 << cell for cell in rng.sample(list(cells(floor)), num_boxes))
    return Room(size, floor, goals)


def _symmetries(room: Room) -> Iterator[str]:
    rows = write_map(room, Position(0, -1)).split("/")
    for _ in range(4):
        yield "/".join(rows)
        yield "/".join(rows[::-1])
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
