"""Draws Blocksworld tasks: two random worlds of the same blocks, far enough from each other."""

from collections.abc import Mapping
from random import Random

from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.blocksworld.stacks import TABLE, shortest_plan, stacks, supports, world_of


def draw(rng: Random, split: Split, *, size: int, min_moves: int) -> str | None:
    """``first>goal``, or None when it is another split's or too near."""
    first, goal = _world(rng, size), _world(rng, size)
    if first == goal or split_of(first, goal) != split:
        return None
    if len(shortest_plan(first, goal)) < min_moves:
        return None
    return f"{first}>{goal}"


def split_of(first: str, goal: str) -> Split:
    """The one split that owns the task, whatever its blocks are called."""
    return split_of_key(unnamed(first, goal))


def unnamed(first: str, goal: str) -> str:
    """A text that is equal for tasks that differ in the names of their blocks only.

    Blocks are told apart by their heights in both worlds, then by their neighbours, again and
    again. A few different tasks may share a text, and so a split; no task has two.
    """
    signatures = _heights(first, goal)
    text = repr(sorted(signatures.values()))
    below = (supports(first), supports(goal))
    above = [
        {lower: upper for upper, lower in uppers.items() if lower != TABLE} for uppers in below
    ]
    ranks = _ranks(signatures)
    for _ in signatures:
        neighbours = (*below, *above)
        signatures = {
            block: (rank, *(ranks.get(uppers.get(block, ""), -1) for uppers in neighbours))
            for block, rank in ranks.items()
        }
        ranks = _ranks(signatures)
    return text + repr(sorted(signatures.values()))


def _heights(first: str, goal: str) -> dict[str, tuple[int, ...]]:
    heights: dict[str, tuple[int, ...]] = {}
    for world in (first, goal):
        for pile in stacks(world):
            for height, block in enumerate(pile):
                heights[block] = (*heights.get(block, ()), height, len(pile))
    return heights


def _ranks(signatures: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    order = {signature: rank for rank, signature in enumerate(sorted(set(signatures.values())))}
    return {block: order[signature] for block, signature in signatures.items()}


def _world(rng: Random, size: int) -> str:
    """Blocks in a random order, each onto one of the stacks so far or, as likely, the table."""
    piles: list[str] = []
    for block in rng.sample([chr(ord("a") + index) for index in range(size)], size):
        chosen = rng.randrange(len(piles) + 1)
        if chosen == len(piles):
            piles.append(block)
        else:
            piles[chosen] += block
    return world_of(piles)
