"""MAREINFORCE: the plain return as advantage, without a baseline.

The plainest member of CoMLRL's family. Divided by the group's standard deviation (``scale: std``)
it stays distinct from its siblings, because the quotient is not centred again; CoMLRL 1.4.3
centres it again, which makes all four members of the family the same algorithm.

With the spec's part ``joint`` it draws the joint tree of MAGRPO and takes the returns of its nodes;
without, K whole episodes of the team.

Source: REINFORCE (Williams 1992); for teams of LLMs: CoMLRL (arXiv 2508.04652).
"""

from troupe.algorithms.base import GroupRelative


class Mareinforce(GroupRelative):
    """Joint trajectories or a joint tree, advantages r, sums over completions."""

    options = frozenset({"joint"})
    compares_in_group = False
    least_candidates = 1
    baseline = "none"
    scale = "none"
    default_aggregation = "sequence_sum"
