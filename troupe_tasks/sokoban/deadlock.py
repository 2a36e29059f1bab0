"""Work left in a Sokoban position: a lower bound of pushes, and sure signs that it is lost.

Sound and cheap, not complete: what is called lost can never be solved; some lost positions of
several boxes are not recognised.
"""

from collections import deque
from collections.abc import Mapping
from functools import lru_cache

from troupe_tasks.sokoban.room import Room, cells

INFINITE = 10**6


@lru_cache(maxsize=4096)
def pushes_left(room: Room, boxes: int) -> int | None:
    """Least pushes that bring each box to a goal of its own if boxes did not block each other.

    None when that is impossible (a box in a corner, against a wall without a goal, or more boxes
    than goals they can reach), or when boxes hold each other fast off their goals.
    """
    to_goal = goal_distances(room)
    costs = [
        [to_goal[goal].get(box, INFINITE) for goal in cells(room.goals)] for box in cells(boxes)
    ]
    left = _cheapest_matching(costs)
    if left >= INFINITE:
        return None
    off_goals = boxes & ~room.goals
    if any(_is_frozen(room, boxes, box) for box in cells(off_goals)):
        return None
    return left


@lru_cache(maxsize=1024)
def goal_distances(room: Room) -> Mapping[int, Mapping[int, int]]:
    """For each goal, the least pushes to it of a box alone, from every cell that allows it.

    Found by pulling a box away from the goal: the player needs the two cells behind the pull.
    """
    return {goal: _pulled(room, goal) for goal in cells(room.goals)}


def _pulled(room: Room, goal: int) -> dict[int, int]:
    pushes = {goal: 0}
    frontier = deque([goal])
    while frontier:
        box = frontier.popleft()
        for offset in room.offsets.values():
            origin, player = box - offset, box - 2 * offset
            if origin in pushes or not room.floor >> origin & 1:
                continue
            if room.floor >> player & 1:
                pushes[origin] = pushes[box] + 1
                frontier.append(origin)
    return pushes


def _cheapest_matching(costs: list[list[int]]) -> int:
    """Least sum of one entry per row, no column twice; dynamic programming over column sets."""
    cheapest = {0: 0}
    for row in costs:
        grown: dict[int, int] = {}
        for taken, cost in cheapest.items():
            for column, entry in enumerate(row):
                if not taken >> column & 1:
                    key = taken | 1 << column
                    grown[key] = min(grown.get(key, INFINITE), cost + entry)
        cheapest = grown
    return min(cheapest.values(), default=INFINITE)


def _is_frozen(room: Room, boxes: int, box: int, walls: int = 0) -> bool:
    """Whether ``box`` can move along neither axis, ever; boxes in ``walls`` count as walls."""
    return all(_is_held(room, boxes, box, step, walls | 1 << box) for step in (1, room.size))


def _is_held(room: Room, boxes: int, box: int, step: int, walls: int) -> bool:
    sides = (box - step, box + step)
    if any(not room.floor >> side & 1 or walls >> side & 1 for side in sides):
        return True
    live = _live_cells(room)
    if all(not live >> side & 1 for side in sides):
        return True
    return any(boxes >> side & 1 and _is_frozen(room, boxes, side, walls) for side in sides)


@lru_cache(maxsize=1024)
def _live_cells(room: Room) -> int:
    """Cells from which a box alone could still reach some goal."""
    live = 0
    for distances in goal_distances(room).values():
        for cell in distances:
            live |= 1 << cell
    return live
