"""GiGPO: whole episodes compared, and acts that had the same prompt compared.

Source: GiGPO (arXiv 2505.10978), Equations 3 to 9; with K episodes of one task, an anchor state is
a prompt that several acts of an agent had.
"""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

from pydantic import BaseModel, Field

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.turn_grpo import TurnParams, turn_returns, turn_sampler
from troupe.samplers.sampler import Sampler


class GiGpoParams(TurnParams):
    """What a turn's reward is, and what later turns and equal prompts count."""

    gamma: float = Field(
        default=0.95, ge=0.0, le=1.0, description="Discount per turn; 0: later turns count nothing."
    )
    step_weight: float = Field(
        default=1.0, ge=0.0, description="Weight of the comparison at equal prompts."
    )


class GiGpo(GroupRelative):
    """A = A_episode + step_weight * A_step, of K whole episodes with rewards by turn.

    A_episode compares the undiscounted returns of whole episodes, each counted once. A_step
    compares the discounted returns of acts whose prompts are equal (the paper's anchor states); an
    act whose prompt no other had gets 0. Prompts are compared by digest of their tokens. With
    ``reward: own_act`` both are of what the agent's own acts are paid.
    """

    Params: ClassVar[type[BaseModel] | None] = GiGpoParams
    params: GiGpoParams

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, rewards by turn."""
        return turn_sampler(self._spec.group_size, self.params)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """The sum of both comparisons."""
        scale = "std" if self.is_scaled else "none"
        totals: defaultdict[int, float] = defaultdict(float)
        at_prompt: defaultdict[str, list[int]] = defaultdict(list)
        for place, act in enumerate(group.candidates):
            totals[act.trajectory] += act.reward
            at_prompt[act.prompt_digest].append(place)
        of_episode = dict(zip(totals, group_relative(list(totals.values()), scale), strict=True))
        advantages = [of_episode[act.trajectory] for act in group.candidates]
        returns = turn_returns(group, self.params.gamma)
        for places in at_prompt.values():
            relative = group_relative([returns[place] for place in places], scale)
            for place, value in zip(places, relative, strict=True):
                advantages[place] += self.params.step_weight * value
        return advantages
