"""Solves Sokoban by A* over pushes.

Up to ``NUM_EXACT_BOXES`` boxes: fewest pushes, and among those fewest moves. With more boxes: at
most twice the fewest pushes, in a small part of the time.
"""

import heapq
from collections.abc import Iterator
from functools import lru_cache

from troupe_tasks.sokoban.deadlock import pushes_left
from troupe_tasks.sokoban.room import Position, Room, read_map, spread

MAX_NODES = 50_000
"""Positions taken up in one search, at most."""

NUM_EXACT_BOXES = 3

_Node = tuple[int, int]  # boxes, player


@lru_cache(maxsize=4096)
def solution(board: str) -> str | None:
    """Move letters that solve the map, or None when it is lost (or beyond ``MAX_NODES``)."""
    room, position = read_map(board)
    return solve(room, position)


def solve(room: Room, position: Position) -> str | None:
    """Move letters that push every box onto a goal; None when there are none."""
    weight = 1 if room.goals.bit_count() <= NUM_EXACT_BOXES else 2
    start = (position.boxes, position.player)
    estimate = pushes_left(room, position.boxes)
    if estimate is None:
        return None
    best = {start: (0, 0)}
    came: dict[_Node, tuple[_Node, str]] = {}
    queue = [(weight * estimate, 0, 0, start)]
    num_taken = 0
    while queue and num_taken < MAX_NODES:
        _, moves, pushes, node = heapq.heappop(queue)
        if best[node] != (pushes, moves):
            continue
        if node[0] == room.goals:
            return _moves_to(room, came, node, start)
        num_taken += 1
        for after, walked, push in _pushes(room, node):
            cost = (pushes + 1, moves + walked + 1)
            if after in best and best[after] <= cost:
                continue
            left = pushes_left(room, after[0])
            if left is not None:
                best[after] = cost
                came[after] = (node, push)
                heapq.heappush(queue, (cost[0] + weight * left, cost[1], cost[0], after))
    return None


def _pushes(room: Room, node: _Node) -> Iterator[tuple[_Node, int, str]]:
    """Each push that the player can walk to, with the number of steps before it."""
    boxes, player = node
    free = room.floor & ~boxes
    wanted: list[tuple[int, int, int, str]] = []
    for move, offset in room.offsets.items():
        # Boxes with the player's cell free behind and the target cell free ahead.
        pushable = boxes & (_shift(free, offset)) & (_shift(free, -offset))
        while pushable:
            bit = pushable & -pushable
            pushable ^= bit
            wanted.append((_shift(bit, -offset), bit, _shift(bit, offset), move))
    layer, steps = 1 << player, 0
    while wanted:
        for _, bit, target, move in [push for push in wanted if push[0] & layer]:
            yield (boxes & ~bit | target, bit.bit_length() - 1), steps, move
        wanted = [push for push in wanted if not push[0] & layer]
        grown = spread(room.size, layer, free)
        if grown == layer:
            return
        layer, steps = grown, steps + 1


def _shift(board: int, offset: int) -> int:
    return board << offset if offset > 0 else board >> -offset


def _moves_to(room: Room, came: dict[_Node, tuple[_Node, str]], node: _Node, start: _Node) -> str:
    parts: list[str] = []
    while node != start:
        before, push = came[node]
        stand = node[1] - room.offsets[push]
        parts.append(_walk(room, before, stand) + push)
        node = before
    return "".join(reversed(parts))


def _walk(room: Room, node: _Node, target: int) -> str:
    """A shortest walk around the boxes, the first one in the order of the move letters."""
    boxes, player = node
    free = room.floor & ~boxes
    layers = [1 << target]
    while not layers[-1] >> player & 1:
        layers.append(spread(room.size, layers[-1], free))
    moves = ""
    for layer in reversed(layers[:-1]):
        for move, offset in room.offsets.items():
            if layer >> (player + offset) & 1:
                moves += move
                player += offset
                break
    return moves
