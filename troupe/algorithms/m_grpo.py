"""M-GRPO: each agent by its own statistics, and as many trajectories of it from every rollout.

A rollout calls a sub-agent any number of times. The paper makes that number the same for all
rollouts by repeating and dropping sub-agent trajectories at random, so that every rollout has the
same say in the sub-agent's statistics and its loss. Here each call has the weight that it has on
average in such a batch: a rollout counts once in mean and deviation, and its calls share one
rollout's weight in the loss. Nothing is dropped, and no number has to be chosen.

A call's reward is the return of its rollout for the agent; the paper's scores each sub-trajectory
as well.

Source: M-GRPO (arXiv 2511.13288), trajectory alignment; its abstract and summaries were read, its
equations were not.
"""

from __future__ import annotations

from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.rollout_weights import equal_rollouts


class MGrpo(GroupRelative):
    """(R - mean) / std over the rollouts that called the agent, each weighing the same.

    Example: unscaled, three calls in a rollout of return 1 and one in a rollout of return 0, of
    equal lengths: 1/3 each (1/2 * 2 / 3), and -1 (-1/2 * 2 / 1).
    """

    def advantages(self, group: GroupOutcome) -> list[float]:
        """GRPO's advantages, weighed."""
        return equal_rollouts(group, super().advantages(group), self.aggregation)
