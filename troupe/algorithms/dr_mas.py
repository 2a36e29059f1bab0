"""Dr. MAS: each agent is normalised by its own statistics.

A mean and deviation over all agents of a group misjudges agents whose rewards differ in range,
and makes the gradient norm jump. Here both are computed over the agent's own turns in the K
trajectories of a task, each turn counting once.

Source: "Dr. MAS" (arXiv 2602.08847), agent-wise normalisation.
"""

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative


class DrMas(GroupRelative):
    """Parallel trajectories; statistics over the agent's own turns."""

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Each turn's reward relative to those of all the agent's turns in the group.

        Example: returns 1 (one turn) and 0 (three turns) have mean 1/4, not 1/2.
        """
        rewards = [c.reward for c in group.candidates]
        return group_relative(rewards, self._spec.scale or self.scale)
