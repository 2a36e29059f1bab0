"""MATPO: workers that a planner calls any number of times share the planner's advantage.

The planner's returns of the K rollouts of a task are compared, each rollout once; a rollout in
which a worker was never called counts like any other. Every call of every agent in a rollout has
that rollout's advantage, so a worker is not compared with itself in those rollouts alone that
called it.

Source: MATPO (arXiv 2510.04678), and its authors' code: the advantages of the main agent's
rollouts, GRPO's, are handed to the sub-agents' rollouts, and the loss is a mean over tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.options import refuse_penalties
from troupe.algorithms.rollout_weights import equal_rollouts
from troupe.errors import InvalidArgumentError
from troupe.samplers.led import LedSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.params import Params


class MatpoParams(Params):
    """Whose advantage is shared, and what a rollout's calls weigh."""

    lead: str = Field(description="The agent whose advantage all agents of a rollout share.")
    weigh: Literal["tokens", "rollouts"] = Field(
        default="tokens",
        description="tokens: each token of an agent weighs the same, so a rollout with more calls "
        "weighs more; rollouts: each rollout of a group weighs the same.",
    )


class Matpo(GroupRelative):
    """(R - mean) / std of the lead's returns over K rollouts, for every call of every agent.

    Example: unscaled, lead's returns 1, 0, 0: each call in the first rollout gets 2/3, each in the
    others -1/3, also if the second alone has calls of this agent.
    """

    Params: ClassVar[type[BaseModel] | None] = MatpoParams
    params: MatpoParams

    def __init__(self, spec: AlgorithmSpec, params: BaseModel) -> None:
        super().__init__(spec, params)
        refuse_penalties(spec, "changes the reward of single calls, and calls share the lead's")

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, each with the lead's return."""
        return LedSampler(self._spec.group_size, self.params.lead)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """The lead's advantage in the rollout of each call."""
        if not group.lead_returns:
            raise InvalidArgumentError(
                f"group {group.group_id} has no returns of the lead; it was played for another "
                "algorithm, or by a router of an older version: play it again"
            )
        scale = "std" if self.is_scaled else "none"
        shared = group_relative(group.lead_returns, scale)
        advantages = [shared[call.trajectory] for call in group.candidates]
        if self.params.weigh == "tokens":
            return advantages
        return equal_rollouts(group, advantages, self.aggregation)
