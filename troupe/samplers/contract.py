"""How candidates are drawn at each action, and which one the episode goes on from."""

from collections.abc import Sequence
from typing import Literal, Protocol

GroupingKey = Literal["observation", "task"]
"""observation: (task instance, agent, turn), one prompt; task: (task instance, agent)."""


class Sampler(Protocol):
    """Pure decisions; the episode player does the work.

    ``num_trajectories`` independent episodes are played of each ticket (1 for the tree);
    ``num_candidates`` are drawn at every action of each.
    """

    num_trajectories: int
    num_candidates: int
    grouping: GroupingKey

    def choose(self, rewards: Sequence[float]) -> int:
        """Index of the candidate whose state the episode goes on from."""
        ...
