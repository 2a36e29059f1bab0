"""REINFORCE++: no baseline per prompt; one whitening over the whole step.

The mean and the deviation over all completions of a step are estimated from far more samples than
a group has, so no prompt is divided by its own small deviation. ``ReinforcePpBaseline`` subtracts
the group's mean first, which the paper recommends where each prompt is sampled several times.
``scale: none`` leaves the whitening out.

Source: REINFORCE++ (arXiv 2501.03262), Sections 3.1 (global normalisation) and 3.2 (baseline).
"""

from __future__ import annotations

from collections.abc import Sequence

from troupe.algorithms.advantages import whitened
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative


class ReinforcePp(GroupRelative):
    """Rewards, whitened over all completions of the step."""

    baseline = "none"
    compares_in_group = False

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Rewards minus the baseline, unscaled: scaling happens once per step."""
        return self._relative(group, is_scaled=False)

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """Whitened over every candidate of the step, unless ``scale`` is none."""
        return whitened(advantages) if self.is_scaled else list(advantages)


class ReinforcePpBaseline(ReinforcePp):
    """Rewards minus the group's mean, whitened over all completions of the step."""

    baseline = "mean"
    compares_in_group = True
