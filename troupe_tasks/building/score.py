"""How good a world is: intersection over union with the blueprint, materials included.

What the best single command reaches in an empty world is unpaid, so filling the site with one
material, or any constant answer of one command, earns nothing.
"""

from functools import lru_cache
from itertools import accumulate, combinations_with_replacement

from troupe_tasks.building.blueprint import AIR, Blueprint


def overlap(blueprint: Blueprint, world: str) -> float:
    """Cells with the right material over cells that hold a block in the blueprint or the world.

    Source: ``iou`` of LLM_Collab_Minecraft, here with the material compared too; 1 is done.
    """
    pairs = [(a, b) for a, b in zip(blueprint.target, world, strict=True) if (a, b) != (AIR, AIR)]
    return sum(a == b for a, b in pairs) / len(pairs)


def right_and_wrong(blueprint: Blueprint, world: str) -> tuple[int, int]:
    """Blocks of the world that are where they belong, and those that are not."""
    standing = [(a, b) for a, b in zip(blueprint.target, world, strict=True) if b != AIR]
    right = sum(a == b for a, b in standing)
    return right, len(standing) - right


def progress(best: float, floor: float) -> float:
    """The share of the way from what one command reaches to a finished building."""
    return max(0.0, (best - floor) / (1.0 - floor)) if floor < 1.0 else best


@lru_cache(maxsize=1024)
def one_command_overlap(target: str, width: int, depth: int, height: int) -> float:
    """The best overlap that one ``fill`` of an empty world reaches, whatever the stock.

    A target that is one box is worth nothing less for it: then 0.
    """
    num_blocks = len(target) - target.count(AIR)
    best = 0.0
    for letter in sorted(set(target) - {AIR}):
        inside = _sums([cell == letter for cell in target], width, depth, height)
        solid = _sums([cell != AIR for cell in target], width, depth, height)
        for box in _boxes(width, depth, height):
            right = _in_box(inside, box, width, depth)
            if right == 0:
                continue
            x, x2, y, y2, z, z2 = box
            size = (x2 - x) * (y2 - y) * (z2 - z)
            union = num_blocks + size - _in_box(solid, box, width, depth)
            best = max(best, right / union)
    return best if best < 1.0 else 0.0


Box = tuple[int, int, int, int, int, int]


def _boxes(width: int, depth: int, height: int) -> list[Box]:
    sides = [list(combinations_with_replacement(range(n), 2)) for n in (width, height, depth)]
    return [
        (x, x2 + 1, y, y2 + 1, z, z2 + 1)
        for x, x2 in sides[0]
        for y, y2 in sides[1]
        for z, z2 in sides[2]
    ]


def _sums(flags: list[bool], width: int, depth: int, height: int) -> list[int]:
    """Numbers of set cells below each corner: (width + 1) * (depth + 1) * (height + 1) sums."""
    w, d = width + 1, depth + 1
    sums = [0] * (w * d * (height + 1))
    for y in range(height):
        for z in range(depth):
            start = (y * depth + z) * width
            row = list(accumulate(flags[start : start + width], initial=0))
            at = ((y + 1) * d + z + 1) * w
            for x in range(w):
                sums[at + x] = row[x] + sums[at - w + x] + sums[at - d * w + x]
                sums[at + x] -= sums[at - d * w - w + x]
    return sums


def _in_box(sums: list[int], box: Box, width: int, depth: int) -> int:
    x, x2, y, y2, z, z2 = box
    w, d = width + 1, depth + 1

    def below(x: int, y: int, z: int) -> int:
        return sums[(y * d + z) * w + x]

    return (
        below(x2, y2, z2)
        - below(x, y2, z2)
        - below(x2, y, z2)
        - below(x2, y2, z)
        + below(x, y, z2)
        + below(x, y2, z)
        + below(x2, y, z)
        - below(x, y, z)
    )
