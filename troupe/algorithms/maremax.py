"""MAREMAX: the return minus the best return of its group.

Every advantage is at most 0: the best trajectory stays and the others become less likely.
With ``scale: std`` it stays distinct, because the quotient is not centred again (CoMLRL 1.4.3
centres it again, which turns it into MAGRPO).

With the spec's part ``joint`` it compares at the nodes of MAGRPO's joint tree.

Source: CoMLRL (arXiv 2508.04652), after ReMax (arXiv 2310.10505), whose baseline is a greedy
completion instead of the best sampled one.
"""

from pydantic import BaseModel

from troupe.algorithms.base import GroupRelative
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError


class Maremax(GroupRelative):
    """Joint trajectories or a joint tree, advantages r - max, sums over completions."""

    options = frozenset({"joint"})
    baseline = "max"
    scale = "none"
    default_aggregation = "sequence_sum"

    def __init__(self, spec: AlgorithmSpec, params: BaseModel | None = None) -> None:
        super().__init__(spec, params)
        if not spec.loss.negative_advantage_weight:
            why = "maremax has no advantage above 0, so nothing would be learnt; raise it"
            raise SpecInvalidError([Issue("/algorithm/loss/negative_advantage_weight", why)])
