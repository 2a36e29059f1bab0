"""MAGRPO's sampler: candidates of agents that act at once, combined into joint actions.

Source: CoMLRL (arXiv 2508.04652), Section 4, aligned and cross joint actions.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

from troupe.samplers.sampler import GroupingKey

JointAction = tuple[int, ...]
"""The index of each agent's candidate, in the workflow's order."""

MAX_JOINT_ACTIONS = 4096
"""Maximum joint actions in one ticket's whole tree."""


class JointSampler:
    """K candidates of every agent at each node of a tree; every joint action has a successor."""

    num_trajectories = 1
    num_baselines = 0
    grouping: GroupingKey = "observation"
    sees_jointly = False

    def __init__(self, group_size: int, mode: Literal["aligned", "cross"], gamma: float) -> None:
        self.num_candidates = group_size
        self.mode = mode
        self.gamma = gamma

    def joint_actions(self, num_agents: int) -> list[JointAction]:
        """The joint actions of one node.

        Example: for 2 candidates of 2 agents, aligned gives (0, 0) and (1, 1); cross gives all 4.
        """
        if self.mode == "aligned":
            return [(k,) * num_agents for k in range(self.num_candidates)]
        return list(product(range(self.num_candidates), repeat=num_agents))

    def tree_size(self, num_agents: int, num_turns: int) -> int:
        """Joint actions of a whole tree: J + J ** 2 + ... + J ** turns."""
        width = self.num_candidates if self.mode == "aligned" else self.num_candidates**num_agents
        return sum(width**turn for turn in range(1, num_turns + 1))

    def choose(self, rewards: Sequence[float]) -> int:
        """The best joint action, which the record marks; every joint action continues."""
        return max(range(len(rewards)), key=lambda i: (rewards[i], -i))
