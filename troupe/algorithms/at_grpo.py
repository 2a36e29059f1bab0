"""AT-GRPO: K candidates at every (agent, turn), compared with their siblings only.

The members of a group share one observation, so the difference of their rewards is due to
their actions alone; the episode goes on from the best.

Source: Stronger-MAS (arXiv 2510.11062), Algorithm 1 and Equations 2-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.contract import GroupOutcome, LossInputs, LossOutput
from troupe.samplers.contract import Sampler
from troupe.samplers.tree import TreeSampler

if TYPE_CHECKING:
    from troupe.spec.job import AlgorithmSpec


class AtGrpo:
    """Tree sampling, advantages per (task instance, agent, turn), and the clipped loss."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        self._spec = spec

    @property
    def needs_entropy(self) -> bool:
        """True with an entropy bonus."""
        return self._spec.loss.entropy_coef > 0.0

    def sampler(self) -> Sampler:
        """``group_size`` candidates at every action."""
        return TreeSampler(self._spec.group_size)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Rewards against those of the siblings."""
        return group_relative([c.reward for c in group.candidates], self._spec.scale)

    def loss(self, inputs: LossInputs) -> LossOutput:
        """PPO's clipped surrogate, summed over tokens."""
        from troupe.algorithms.losses.ppo_clip import ppo_clip

        return ppo_clip(inputs, self._spec.loss)
