"""CCPO: what the team's return loses without the agent.

Each episode is played once more for each agent, with the agent absent: n replays where the Shapley
value needs 2 ** n - 1. What the team gets without the agent does not depend on what the agent
says where the others react to its absence, so the difference is the return with a baseline, and its
gradient is that of the return.

The difference itself counts, not its sign, and against the episode's own replay: the mean over the
K episodes of a task (the paper's baseline) is one number for the whole group, and comparing rewards
in the group would cancel it.

Source: CCPO (arXiv 2603.21563), counterfactual credit: R + lambda * (R - R without the agent).
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from troupe.algorithms.base import GroupRelative
from troupe.samplers.coalition import CoalitionParams, CoalitionSampler
from troupe.samplers.sampler import Sampler


class CcpoParams(CoalitionParams):
    """The defaults are the weights of the paper's code."""

    team_weight: float = Field(
        default=1.0, ge=0.0, description="What the team's return counts in each agent's reward."
    )
    credit_weight: float = Field(
        default=0.2, gt=0.0, description="What it would lose without the agent counts (lambda)."
    )


class Ccpo(GroupRelative):
    """K episodes; GRPO's (R - mean) / std with R + lambda * (R - R without the agent) as R.

    Local terms count as they do in GRPO.

    Example: the team gets 1, without the agent 0, and lambda is 0.2: 1.2.
    """

    Params: ClassVar[type[BaseModel] | None] = CcpoParams
    params: CcpoParams

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, and each without each agent."""
        return CoalitionSampler(self._spec.group_size, "counterfactual", self.params)
