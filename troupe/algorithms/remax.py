"""ReMax: the return minus that of a greedy episode of the same task.

Besides K sampled episodes, each ticket plays one where every agent takes its most likely tokens.
It is the baseline and is never trained. Unlike a group's mean it does not depend on the samples, so
even a single sample has an unbiased gradient.

Source: ReMax (arXiv 2310.10505), Algorithm 1.
"""

from troupe.algorithms.advantages import std_unit
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler


class Remax(GroupRelative):
    """K episodes and a greedy one, advantages r - r(greedy), sums over completions.

    An agent that never acted in the greedy episode has no baseline and gets 0.

    Example: returns 1 and 0 against a greedy 0.25 give 0.75 and -0.25.
    """

    scale = "none"
    least_candidates = 1
    default_aggregation = "sequence_sum"

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, and a greedy one."""
        return ParallelSampler(self._spec.group_size, num_baselines=1)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Returns minus the greedy one, which itself gets 0."""
        greedy = next((c.reward for c in group.candidates if c.is_baseline), None)
        if greedy is None:
            return [0.0] * len(group.candidates)
        sampled = {c.trajectory: c.reward for c in group.candidates if not c.is_baseline}
        unit = std_unit(list(sampled.values())) if self.is_scaled else 1.0
        return [0.0 if c.is_baseline else (c.reward - greedy) / unit for c in group.candidates]
