"""Follow: a candidate is worth its own reward plus the mean of what its continuations bring.

At each act of a followed agent K candidates are drawn from one prompt. Each is executed on its own
copy of the state and played on to the end M times under the present policies. The value of
candidate k for its agent is

    Q_k = r_k + (1 / M) * (R_k1 + ... + R_kM),

an unbiased estimate of its return, so that an action is paid for an outcome that comes later. The
K values are compared with each other. Without ``scale: std`` that is VinePPO's advantage
r + V(s') - V(s), with the mean of the K values as V(s).

Agents that are not followed learn from their acts in the continuations, compared by task: each
carries the return of its continuation.

Source: VinePPO (arXiv 2410.01679), Section 4; for designers of workflows and their executors
MetaAgent-X (arXiv 2605.14212).
"""

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.samplers.follow import FollowSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.algorithm import FollowSpec


class Follow(GroupRelative):
    """K candidates, M continuations of each; advantages (Q - mean) / std among siblings.

    In groups by task each continuation counts once, however many acts it has.

    Example: rewards 0, 1 with continuations that bring (1, 0) and (1, 1): values 0.5 and 2.
    """

    sampling = "parallel"
    options = frozenset({"follow"})

    def sampler(self) -> Sampler:
        """K candidates at each followed act, as ``algorithm.follow`` says."""
        follow = self._spec.follow or FollowSpec()
        return FollowSampler(
            self._spec.group_size,
            executions=follow.executions,
            agents=follow.agents,
            goes_on=follow.goes_on,
        )

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Siblings against each other; acts of continuations by the returns of these."""
        places = {(c.trajectory, c.turn) for c in group.candidates}
        if len(places) > 1:
            return super().advantages(group)
        scale = "std" if self.is_scaled else "none"
        return group_relative([c.reward for c in group.candidates], scale, self.baseline)
