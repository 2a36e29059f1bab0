"""AT-GRPO's sampler: K candidates at every (agent, turn); the best continues.

Decides only: `episodes.branch` draws the candidates.

Source: Stronger-MAS (arXiv 2510.11062), Algorithm 1.
"""

from collections.abc import Sequence
from typing import Literal

from troupe.samplers.sampler import GroupingKey


class TreeSampler:
    """One spine with K leaves per node: cost K * turns * agents, not K ** turns."""

    num_trajectories = 1
    num_baselines = 0
    sees_jointly = False
    grouping: GroupingKey = "observation"

    def __init__(self, group_size: int, *, advance: Literal["best", "random"] = "best") -> None:
        self.num_candidates = group_size
        self._advance = advance

    def choose(self, rewards: Sequence[float]) -> int:
        """Index of the highest reward, the first of equals.

        Candidates are independent draws of one distribution, so the first one is a random one.
        """
        if self._advance == "random":
            return 0
        return max(range(len(rewards)), key=lambda i: (rewards[i], -i))
