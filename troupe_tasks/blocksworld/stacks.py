"""Stacks of blocks as text, the one rule of moving them, and shortest plans.

A stack is its blocks' letters from the table up; stacks are sorted and joined by ``/``, so equal
worlds are equal texts: ``ab/c`` has b on a, and c alone. An instance is ``first>goal``. Knows
nothing of agents, rewards or prompts.
"""

import heapq
from collections.abc import Iterator, Mapping
from functools import lru_cache

TABLE = "table"
MAX_BLOCKS = 12
"""The search for a shortest plan grows with the ways to stack the blocks."""

Move = tuple[str, str]
"""A block and what it goes onto: another block, or the table."""


def stacks(world: str) -> list[str]:
    """The stacks, each from the table up."""
    return world.split("/")


def world_of(piles: list[str]) -> str:
    """The world of some stacks, empty ones left out."""
    return "/".join(sorted(pile for pile in piles if pile))


@lru_cache(maxsize=65536)
def supports(world: str) -> Mapping[str, str]:
    """What each block stands on."""
    return {
        block: pile[height - 1] if height else TABLE
        for pile in stacks(world)
        for height, block in enumerate(pile)
    }


def moved(world: str, move: Move) -> str | None:
    """The world after one move, or None when it is illegal or changes nothing.

    Only a clear block moves, onto another clear block or, if it does not stand there, the table.
    """
    block, target = move
    piles = stacks(world)
    source = next((pile for pile in piles if pile[-1] == block), None)
    if source is None or block == target or (target == TABLE and source == block):
        return None
    piles.remove(source)
    if target == TABLE:
        return world_of([*piles, source[:-1], block])
    below = next((pile for pile in piles if pile[-1] == target), None)
    if below is None:
        return None
    piles.remove(below)
    return world_of([*piles, source[:-1], below + block])


def in_place(world: str, goal: str) -> set[str]:
    """Blocks that stand as in the goal, with all that is below them: they need not move again."""
    wanted = supports(goal)
    blocks: set[str] = set()
    for pile in stacks(world):
        below = TABLE
        for block in pile:
            if wanted[block] != below:
                break
            blocks.add(block)
            below = block
    return blocks


@lru_cache(maxsize=16384)
def shortest_plan(world: str, goal: str) -> tuple[Move, ...]:
    """A shortest plan from ``world`` to ``goal``.

    A move that puts a block in its place is always right, and any other block may as well go to
    the table; so the search only branches on which block that is.

    Source: Gupta and Nau, On the complexity of blocks-world planning, 1992.

    Raises:
        ValueError: the two are no worlds of the same blocks, or of more than ``MAX_BLOCKS``.
    """
    blocks, wanted = ("".join(sorted(text.replace("/", ""))) for text in (world, goal))
    if blocks != wanted or len(set(blocks)) != len(blocks) or len(blocks) > MAX_BLOCKS:
        raise ValueError(f"no worlds of the same 1 to {MAX_BLOCKS} blocks: {blocks}, {wanted}")
    start, moves = _settled(world, goal)
    queue: list[tuple[int, int, str, tuple[Move, ...]]] = []
    heapq.heappush(queue, (len(moves) + _least(start, goal), 0, start, moves))
    best = {start: len(moves)}
    num_pushed = 0
    while queue:
        _, _, current, plan = heapq.heappop(queue)
        if current == goal:
            return plan
        if best[current] < len(plan):
            continue
        for move in _clearings(current, goal):
            cleared = moved(current, move)
            assert cleared is not None, "a block that stands on another can go to the table"
            settled, more = _settled(cleared, goal)
            longer = (*plan, move, *more)
            if settled not in best or len(longer) < best[settled]:
                best[settled] = len(longer)
                num_pushed += 1
                estimate = len(longer) + _least(settled, goal)
                # Among equals the latest first: depth first through a plateau.
                heapq.heappush(queue, (estimate, -num_pushed, settled, longer))
    raise AssertionError("every world leads to every other one over the table")


def _settled(world: str, goal: str) -> tuple[str, tuple[Move, ...]]:
    """Moves of blocks into their places, as long as there are any."""
    wanted = supports(goal)
    plan: list[Move] = []
    is_moving = True
    while is_moving:
        is_moving = False
        placed = in_place(world, goal)
        for pile in stacks(world):
            block = pile[-1]
            target = wanted[block]
            if block in placed or (target != TABLE and target not in placed):
                continue
            after = moved(world, (block, target))
            if after is not None:
                world, is_moving = after, True
                plan.append((block, target))
                break
    return world, tuple(plan)


def _clearings(world: str, goal: str) -> Iterator[Move]:
    placed = in_place(world, goal)
    for pile in stacks(world):
        if len(pile) > 1 and pile[-1] not in placed:
            yield pile[-1], TABLE


def _least(world: str, goal: str) -> int:
    """Moves needed at least: one for each block out of place, two for one that holds up another.

    A block above another that is out of place, both here and in the goal, must go out of the way
    first and come back.
    """
    placed = in_place(world, goal)
    above = _below_of(goal)
    least = 0
    for pile in stacks(world):
        for height, block in enumerate(pile):
            if block not in placed:
                lower = set(pile[:height]) - placed
                least += 2 if lower & above[block] else 1
    return least


@lru_cache(maxsize=1024)
def _below_of(world: str) -> Mapping[str, frozenset[str]]:
    return {
        block: frozenset(pile[:height])
        for pile in stacks(world)
        for height, block in enumerate(pile)
    }
