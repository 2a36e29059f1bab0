"""REINFORCE++: no baseline per prompt; one whitening over the whole step.

The mean and the deviation over all trajectories of a step are estimated from far more samples than
a group has, so no prompt is divided by its own small deviation. ``ReinforcePpBaseline`` subtracts
the group's mean first, which the paper recommends where each prompt is sampled several times.
``scale: none`` leaves the whitening out. A reward is one number a completion: KL in the reward is
summed over the completion, where the paper subtracts from each token what is still to come.

Source: REINFORCE++ (arXiv 2501.03262), Sections 3.1 (global normalisation) and 3.2 (baseline).
"""

from __future__ import annotations

from collections.abc import Sequence

from troupe.algorithms.advantages import over_the_steps_std, whitened
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative


class ReinforcePp(GroupRelative):
    """Rewards, whitened over all trajectories of the step."""

    baseline = "none"
    compares_in_group = False
    least_candidates = 1

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Rewards minus the baseline, unscaled: scaling happens once per step."""
        return self._relative(group, is_scaled=False)

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """Whitened over the trajectories of the step, unless ``scale`` is none."""
        if not self.is_scaled:
            return list(advantages)
        return whitened(advantages, [self._counted(group) for group in groups])


class ReinforcePpBaseline(ReinforcePp):
    """Rewards minus the group's mean, whitened over all trajectories of the step."""

    baseline = "mean"
    compares_in_group = True
    least_candidates = 2

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """Divided by the deviation over the trajectories of the step, whose mean is 0 already."""
        if not self.is_scaled:
            return list(advantages)
        return over_the_steps_std(advantages, [self._counted(group) for group in groups])
