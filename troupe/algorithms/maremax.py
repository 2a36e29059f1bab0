"""MAREMAX: the return minus the best return of its group.

Every advantage is at most 0: the best trajectory stays and the others become less likely.
With ``scale: std`` it stays distinct, because the quotient is not centred again (CoMLRL 1.4.3
centres it again, which turns it into MAGRPO).

With the spec's part ``joint`` it compares at the nodes of MAGRPO's joint tree.

Source: CoMLRL (arXiv 2508.04652), after ReMax (arXiv 2310.10505), whose baseline is a greedy
completion instead of the best sampled one.
"""

from troupe.algorithms.base import GroupRelative


class Maremax(GroupRelative):
    """Joint trajectories or a joint tree, advantages r - max, sums over completions."""

    options = frozenset({"joint"})
    baseline = "max"
    scale = "none"
    default_aggregation = "sequence_sum"
