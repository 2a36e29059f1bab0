"""Dr.GRPO: GRPO without its two biases.

No division by the group's standard deviation, which favours tasks that are nearly solved or
nearly hopeless; no division by a completion's length, which favours long wrong answers. The sum
over a completion's tokens is averaged over completions; the paper also divides by a constant,
which the learning rate absorbs.

Source: "Understanding R1-Zero-Like Training" (arXiv 2503.20783), Section 3.2.
"""

from troupe.algorithms.base import GroupRelative


class DrGrpo(GroupRelative):
    """Parallel trajectories, advantages r - mean, sums over completions."""

    scale = "none"
    default_aggregation = "sequence_sum"
