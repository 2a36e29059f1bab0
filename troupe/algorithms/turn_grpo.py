"""Credit by turn without a critic: what an act is worth is what was earned from it on.

K whole episodes of a task are played, a turn's reward is all that is paid until the agent's next
act, and the returns of an agent's acts are compared with each other. With ``reward: own_act`` it is
what the act itself was paid, as siblings of one observation are in AT-GRPO; with ``gamma`` 0 an act
is then worth the same here as there, and what differs is whom it is compared with.

Source: MARSHAL (arXiv 2510.15414), turn-level returns, normalised by role.
"""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.params import Params


class TurnParams(Params):
    """What a turn's reward is, and what later turns count."""

    gamma: float = Field(
        default=1.0, ge=0.0, le=1.0, description="Discount per turn; 0: later turns count nothing."
    )
    reward: Literal["until_next_act", "own_act"] = Field(
        default="until_next_act",
        description="All that the agent is paid until its next act, whoever acts (by default), or "
        "what its own act is paid.",
    )


class TurnGrpo(GroupRelative):
    """(G - mean) / std over an agent's acts in the K episodes of a task; G: return of an act."""

    Params: ClassVar[type[BaseModel] | None] = TurnParams
    params: TurnParams

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, rewards by turn."""
        return turn_sampler(self._spec.group_size, self.params)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Every act counts once."""
        returns = turn_returns(group, self.params.gamma)
        return group_relative(returns, "std" if self.is_scaled else "none")


def turn_sampler(group_size: int, params: TurnParams) -> Sampler:
    """Whole episodes, each act with the reward that ``params`` says."""
    grouping = "acts" if params.reward == "own_act" else "turns"
    return ParallelSampler(group_size, grouping=grouping)


def turn_returns(group: GroupOutcome, gamma: float) -> list[float]:
    """Of each candidate, the discounted sum of its trajectory's rewards from its turn on.

    Example: rewards 0, 1, 2 over three turns with gamma 1/2 return 1, 2 and 2.
    """
    returns = [0.0] * len(group.candidates)
    following: defaultdict[int, float] = defaultdict(float)
    acts = sorted(range(len(returns)), key=lambda i: group.candidates[i].turn, reverse=True)
    for place in acts:
        act = group.candidates[place]
        following[act.trajectory] = act.reward + gamma * following[act.trajectory]
        returns[place] = following[act.trajectory]
    return returns
