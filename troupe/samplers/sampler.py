"""How many candidates an action gets, and which one continues; `episodes.branch` draws them."""

from collections.abc import Sequence
from typing import Literal, Protocol

GroupingKey = Literal["observation", "task", "turns", "acts"]
"""observation: (task instance, agent, turn), one prompt; task: (task instance, agent), each
candidate with the return of its trajectory; turns: like task, each candidate with the rewards
until its agent's next act; acts: like task, each candidate with its own reward alone."""


class Sampler(Protocol):
    """Makes pure decisions; the episode player does the work.

    ``num_trajectories`` independent episodes are played of each ticket (1 for the tree);
    ``num_candidates`` are drawn at every action of each. ``num_baselines`` further episodes are
    played greedily, for comparison only. With ``sees_jointly`` each candidate keeps what all agents
    saw when it was drawn. See ``JointSampler`` for agents that act at once.
    """

    num_trajectories: int
    num_candidates: int
    num_baselines: int
    grouping: GroupingKey
    sees_jointly: bool

    def choose(self, rewards: Sequence[float]) -> int:
        """Index of the candidate whose state the episode continues from."""
        ...
