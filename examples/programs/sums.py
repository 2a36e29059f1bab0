"""Sums as a task: its problems are the programs', and it judges what they return.

It is imported by Troupe, not by the programs. Any registered task can be in its place, such as
`math`; this one needs no sandbox and nothing installed.
"""

import re
from random import Random

from troupe import SimpleTask, Transition
from troupe.tasks.simple import state_value

ANSWER = re.compile(r"ANSWER: (-?\d{1,9})\b")


class Sums(SimpleTask):
    """Say what a + b is: the last "ANSWER: n" counts."""

    agents = ("solver",)
    local_terms = {"solver": {}}  # noqa: RUF012
    usual_workflow = {"max_turns": 1}  # noqa: RUF012

    def draw(self, rng: Random) -> list[int]:
        """Two numbers of two digits."""
        return [rng.randrange(100, 1000), rng.randrange(100, 1000)]

    def observe(self, state: list[int], agent: str) -> str:
        """The question."""
        return f"What is {state[0]} + {state[1]}? End with ANSWER: and the number."

    def step(self, state: list[int], agent: str, action: str) -> Transition:
        """Paid 1 if it is right; one answer ends it."""
        answers = ANSWER.findall(action)
        is_right = bool(answers) and int(answers[-1]) == sum(state)
        return self.transition(state, float(is_right), done=True, success=is_right)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The right answer."""
        return f"ANSWER: {sum(state_value(state))}"

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A right one, one time in two: so that candidates of one call differ."""
        return f"ANSWER: {sum(state_value(state)) + rng.choice([0, 1])}"
