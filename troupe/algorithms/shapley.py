"""Exact Shapley credit: each agent's reward is its part in the team's return.

The coalitions of each episode are played again, 2 ** n - 1 of them for n <= 4 agents, so the value
is computed and not estimated: exact for the draws of that episode. The parts add up to the return
less what a team of absent agents gets, and an agent that changes nothing gets 0, so it learns
nothing from what the others do.

It raises each agent's own part, which is not the gradient of the team's return: the part counts
what the agent does for coalitions that never play. CCPO's difference has that gradient.

Source: Shapley, "A value for n-person games" (1953); SHARP (arXiv 2602.08335) adds the team's
return (``params.team_weight``) and estimates the value.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from troupe.algorithms.base import GroupRelative
from troupe.samplers.coalition import CoalitionParams, CoalitionSampler
from troupe.samplers.sampler import Sampler


class Shapley(GroupRelative):
    """K episodes; GRPO's (R - mean) / std with the agent's Shapley value as the team's reward.

    Local terms count as they do in GRPO.

    Example: a's message and b's answer are worth 1 together and 0 apart: 1/2 for each.
    """

    Params: ClassVar[type[BaseModel] | None] = CoalitionParams
    params: CoalitionParams

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, and the coalitions of each."""
        return CoalitionSampler(self._spec.group_size, "shapley", self.params)
