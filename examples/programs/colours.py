"""Colours as a task for a coding agent: write a named colour into a file and submit the file.

It is imported by Troupe, not by the programs. It is as small as a task of that kind can be, so that
a tiny model sometimes gets it right.
"""

from random import Random

from troupe import SimpleTask, Transition
from troupe.tasks.simple import state_value

COLOURS = ("red", "green", "blue")


class Colours(SimpleTask):
    """Submit the colour that was asked for: the last word counts."""

    agents = ("engineer",)
    local_terms = {"engineer": {}}  # noqa: RUF012
    usual_workflow = {"max_turns": 1}  # noqa: RUF012

    def draw(self, rng: Random) -> list[object]:
        """A colour, and a number that makes the tasks differ."""
        return [rng.choice(COLOURS), rng.randrange(100_000)]

    def observe(self, state: list[object], agent: str) -> str:
        """The question."""
        return f"Order {state[1]}: write {state[0]} into answer.txt"

    def step(self, state: list[object], agent: str, action: str) -> Transition:
        """Paid 1 if it is right; one answer ends it."""
        is_right = action.split()[-1:] == [state[0]]
        return self.transition(state, float(is_right), done=True, success=is_right)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The right answer."""
        return str(state_value(state)[0])

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Some colour."""
        return rng.choice(COLOURS)
