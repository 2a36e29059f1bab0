"""MaxRL: rewards relative to their group's mean, in units of that mean.

With rewards of 0 and 1 the expected gradient is that of the log likelihood's series, truncated:
sum over k < K of (1 - p) ** (k - 1) times the gradient of p, whose first term alone is that of GRPO
without scale. Rare successes weigh more, from K = 3 on.

Source: "Maximum Likelihood Reinforcement Learning" (arXiv 2602.02710): (R - mean) / mean.
"""

from troupe.algorithms.advantages import ZERO_STD
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.options import refuse_penalties
from troupe.errors import InvalidArgumentError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError


class MaxRl(GroupRelative):
    """K episodes; (R - mean) / mean, and 0 in a group without success.

    Example: rewards 0, 0, 0 and 1 give -1, -1, -1 and 3.
    """

    scale = "none"

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        if spec.scale == "std":
            message = "'maxrl' divides by the group's mean instead; leave scale out, or say none"
            raise SpecInvalidError([Issue("/algorithm/scale", message)])
        refuse_penalties(spec, "makes rewards negative, and 'maxrl' takes none below 0")

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Raises InvalidArgumentError for a negative reward, whose sign the mean would turn."""
        if (least := min(candidate.reward for candidate in group.candidates)) < 0.0:
            raise InvalidArgumentError(
                f"agent '{group.agent}' earned {least:g} in group {group.group_id}, and maxrl "
                "divides by the group's mean reward, so rewards must be 0 or more; submit a new "
                "job whose rewards have no negative terms, or one with grpo"
            )
        centred = self._relative(group, is_scaled=False)
        returns = {c.trajectory: c.reward for c in group.candidates}
        mean = sum(returns.values()) / len(returns)
        return [value / mean for value in centred] if mean > ZERO_STD else [0.0] * len(centred)
