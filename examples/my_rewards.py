"""Reward functions for docs/writing-a-reward.md: `reward: examples.my_rewards:brevity`."""

from pydantic import Field

from troupe import JudgedTransition, Params, Task


def brevity(transition: JudgedTransition, task: Task, *, max_words: int = 8) -> float:
    """1 for an empty answer, 0 for one of `max_words` words or more."""
    return max(0.0, 1.0 - len(transition.action.split()) / max_words)


class Keyword:
    """1 when the answer holds a word; a class, because it has parameters that are checked."""

    class Params(Params):
        """What `reward.params` may hold."""

        word: str = Field(min_length=1, description="The word.")

    def __init__(self, params: Params) -> None:
        self.word = params.word

    def __call__(self, transition: JudgedTransition, task: Task) -> float:
        """A reward function is pure: equal arguments, equal numbers."""
        return float(self.word in transition.action.split())
