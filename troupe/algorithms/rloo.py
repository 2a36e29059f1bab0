"""RLOO: REINFORCE whose baseline is the mean reward of the other trajectories.

Unlike the group's mean, the baseline does not depend on the trajectory it is subtracted from, so
the gradient is unbiased. It is K / (K - 1) times GRPO's centred reward.

Source: "Back to Basics" (arXiv 2402.14740), Section 2, Equation for RLOO.
"""

from troupe.algorithms.base import GroupRelative


class Rloo(GroupRelative):
    """Parallel trajectories, advantages r - mean of the others, sums over completions."""

    baseline = "leave_one_out"
    scale = "none"
    default_aggregation = "sequence_sum"
