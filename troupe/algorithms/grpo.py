"""GRPO: K whole trajectories of one task instance, compared by their final reward.

With one agent this is GRPO; with a team it is "MAS + GRPO", the baseline without the tree. A
group holds the turns of one agent over the K trajectories of one task instance; each turn
carries the reward of its trajectory. Mean and standard deviation are over trajectories, however
many turns each took, and every turn gets its trajectory's advantage.

Source: DeepSeekMath (arXiv 2402.03300), Section 4.1; Stronger-MAS (arXiv 2510.11062), Section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.contract import GroupOutcome, LossInputs, LossOutput
from troupe.samplers.contract import Sampler
from troupe.samplers.parallel import ParallelSampler

if TYPE_CHECKING:
    from troupe.spec.job import AlgorithmSpec


class Grpo:
    """``spec.group_size`` parallel trajectories and the clipped loss."""

    def __init__(self, spec: AlgorithmSpec) -> None:
        self._spec = spec

    @property
    def needs_entropy(self) -> bool:
        """True with an entropy bonus."""
        return self._spec.loss.entropy_coef > 0.0

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket."""
        return ParallelSampler(self._spec.group_size)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Rewards against those of the same (task instance, agent)."""
        rewards = {c.trajectory: c.reward for c in group.candidates}
        values = group_relative(list(rewards.values()), self._spec.scale)
        of_trajectory = dict(zip(rewards, values, strict=True))
        return [of_trajectory[c.trajectory] for c in group.candidates]

    def loss(self, inputs: LossInputs) -> LossOutput:
        """PPO's clipped surrogate, summed over tokens."""
        from troupe.algorithms.losses.ppo_clip import ppo_clip

        return ppo_clip(inputs, self._spec.loss)
