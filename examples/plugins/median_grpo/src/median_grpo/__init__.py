"""AT-GRPO whose baseline is the median of a group, and whose scale is the spread around it.

One lucky candidate among eight pulls a mean up and makes the seven others look bad; a median does
not follow it. The scale is the mean distance from the median, which one outlier moves less than it
moves a standard deviation.

Source: the tree is that of Stronger-MAS (arXiv 2510.11062), Algorithm 1; median and mean absolute
deviation as robust location and scale: Huber, "Robust Statistics" (1981).
"""

from statistics import fmean, median

import troupe
from pydantic import Field
from troupe.algorithms.advantages import EPSILON

__all__ = ["MedianGrpo", "Params"]


class Params(troupe.Params):
    """What `algorithm.params` of a job spec may hold."""

    min_spread: float = Field(default=0.0, ge=0.0, description="Least scale: noise stays small.")


class MedianGrpo(troupe.GroupRelative):
    """Tree sampling, and advantages (r - median) / mean distance from the median.

    Example: rewards 0, 0, 0 and 4 have median 0 and mean distance 1: advantages 0, 0, 0, 4.
    """

    sampling = "tree"
    Params = Params

    def advantages(self, group: troupe.GroupOutcome) -> list[float]:
        """One advantage a candidate; all 0 when the rewards are equal."""
        rewards = [candidate.reward for candidate in group.candidates]
        middle = median(rewards)
        distances = [reward - middle for reward in rewards]
        if (self._spec.scale or self.scale) == "none":
            return distances
        spread = max(fmean(map(abs, distances)), self.params.min_spread)
        return [distance / (spread + EPSILON) for distance in distances]
