"""A task that only sight solves: for tests of models that see."""

from random import Random
from typing import Any

from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message, Observation, Transition
from troupe.tasks.simple import SimpleTask, state_value

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220)}
SIDE = 56


class ColourOfImage(SimpleTask):
    """One colour in a shade; say which."""

    def draw(self, rng: Random) -> Any:
        """A colour, and a shade for each channel that makes the instances many."""
        return [rng.choice(sorted(COLOURS)), [rng.randrange(30) for _ in range(3)]]

    def observe(self, state: Any, agent: str) -> Observation:
        """The image and the question."""
        colour, shades = state
        pixel = bytes(c + s for c, s in zip(COLOURS[colour], shades, strict=True))
        image = ImagePart(SIDE, SIDE, pixel * SIDE * SIDE)
        return (Message("user", (image, TextPart("colour ?"))),)

    def step(self, state: Any, agent: str, action: str) -> Transition:
        """One answer ends it."""
        is_right = action.strip() == state[0]
        return self.transition(state, float(is_right), done=True, success=is_right)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The right answer."""
        return str(state_value(state)[0])

    def vocabulary(self) -> list[str]:
        """Words that are one token."""
        return [*COLOURS, "colour", "?"]
