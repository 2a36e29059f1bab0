"""The prompts of the build family: the blueprint, what stands, and the builder's materials.

``compact`` is one line of single letters and words; ``verbose`` has the rules and the layers drawn.
"""

from typing import Literal

from troupe.tasks.family import Message, Observation
from troupe_tasks.building.blueprint import AIR, Blueprint
from troupe_tasks.building.site import stock_left

Style = Literal["compact", "verbose"]

RULES = (
    "You are {agent}{team}. Put blocks so that the site becomes equal to the blueprint. Write one "
    "command a line, at most {most}:\n"
    "fill x1 y1 z1 x2 y2 z2 material\nsetblock x y z material\n"
    "x runs along a row from 0, z from row to row, y from layer to layer; 0 is the ground. Both "
    "corners are included. The material air clears, and the blocks go back to the stock. The stock "
    "is shared and just suffices. You may place and clear only your materials. A command that "
    "cannot be done as a whole is not done at all.{support}"
)
SUPPORT = " A block must touch the ground or the face of another block."
TEAM = (
    ", one of two builders who take turns; the other one has other materials, and neither can "
    "finish alone"
)


def observation(
    blueprint: Blueprint,
    world: str,
    agent: str,
    usable: str,
    refusals: tuple[str, ...],
    *,
    style: Style,
    max_commands: int,
    is_solo: bool,
) -> Observation:
    """The prompt of ``agent``."""
    left = stock_left(blueprint, world)
    if style == "compact":
        parts = ["target", *_compact(blueprint, blueprint.target)]
        parts += ["stands", *_compact(blueprint, world)]
        parts += ["stock", *(f"{letter} {count}" for letter, count in left.items())]
        parts += ["refused", str(len(refusals))] if refusals else []
        return (Message("user", " ".join([*parts, "yours", *usable, agent])),)
    rules = RULES.format(
        agent=agent,
        team="" if is_solo else TEAM,
        most=max_commands,
        support=SUPPORT if blueprint.needs_support else "",
    )
    names = blueprint.materials
    lines = [
        f"Materials: {', '.join(f'{letter} = {name}' for letter, name in names.items())}; "
        f"{AIR} = air",
        f"Yours: {', '.join(names[letter] for letter in usable)}",
        f"Stock: {', '.join(f'{count} {names[letter]}' for letter, count in left.items())}",
        "Blueprint:",
        *_drawn(blueprint, blueprint.target),
        "The site now:",
        *_drawn(blueprint, world),
    ]
    if refusals:
        lines.append(f"Not done last turn: {'; '.join(refusals)}")
    return Message("system", rules), Message("user", "\n".join([*lines, "Your commands?"]))


def _rows(blueprint: Blueprint, world: str) -> list[list[str]]:
    """``[y][z]``, as rows of letters."""
    width, depth = blueprint.width, blueprint.depth
    rows = [world[start : start + width] for start in range(0, len(world), width)]
    return [rows[y * depth : (y + 1) * depth] for y in range(blueprint.height)]


def _compact(blueprint: Blueprint, world: str) -> list[str]:
    layers = _rows(blueprint, world)
    return ["| " + " / ".join(" ".join(row) for row in layer) for layer in layers]


def _drawn(blueprint: Blueprint, world: str) -> list[str]:
    layers = _rows(blueprint, world)
    return [f"y={y}: {' '.join(layer)}" for y, layer in enumerate(layers)]
