"""AT-GRPO: K candidates at every (agent, turn), compared with their siblings only.

The members of a group share one observation, so the difference of their rewards is due to
their actions alone; the episode continues from the best.

Source: Stronger-MAS (arXiv 2510.11062), Algorithm 1 and Equations 2-4.
"""

from troupe.algorithms.base import GroupRelative


class AtGrpo(GroupRelative):
    """Tree sampling, and advantages (r - mean) / std per (task instance, agent, turn)."""

    sampling = "tree"
