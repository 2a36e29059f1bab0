"""GAGPO: advantages over the turns whose critic is the mean return of the acts at one prompt.

Where GiGPO compares acts at a prompt with each other, GAGPO takes their mean return as the value of
that prompt and propagates the outcome back through the turns by GAE. No critic is trained.

The "action-level importance ratio" of the paper is that of ``loss: {kind: gspo}``.

Source: GAGPO (arXiv 2605.13217): grouped value proxy, temporal advantages, group normalisation; GAE
(arXiv 1506.02438), Equation 16.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import ClassVar

from pydantic import BaseModel, Field

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.gae import gae_of_group
from troupe.algorithms.turn_grpo import turn_returns
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.params import Params


class GagpoParams(Params):
    """How the outcome reaches earlier turns."""

    gamma: float = Field(default=1.0, gt=0.0, le=1.0, description="Discount per turn.")
    gae_lambda: float = Field(
        default=0.95, ge=0.0, le=1.0, description="0: one step of difference; 1: whole returns."
    )


class Gagpo(GroupRelative):
    """GAE with V(prompt) = mean return of the acts at that prompt, in the K episodes of a task.

    Normalised to (A - mean) / std over these acts of the agent. At a prompt that no other act had,
    V is the act's own return, so what it brought is credited at the prompts before it.
    """

    Params: ClassVar[type[BaseModel] | None] = GagpoParams
    params: GagpoParams

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, rewards by turn."""
        return ParallelSampler(self._spec.group_size, grouping="turns")

    def advantages(self, group: GroupOutcome) -> list[float]:
        """One per act; every act counts once."""
        gamma, gae_lambda = self.params.gamma, self.params.gae_lambda
        estimated = gae_of_group(group, prompt_values(group, gamma), gamma, gae_lambda)
        return group_relative(estimated, "std" if self.is_scaled else "none")


def prompt_values(group: GroupOutcome, gamma: float) -> list[float]:
    """Of each candidate, the mean return of all acts that had its prompt.

    Example: returns 2 and 1 at prompt a and 4 at prompt b: 1.5, 1.5 and 4.
    """
    returns = turn_returns(group, gamma)
    at_prompt: defaultdict[str, list[float]] = defaultdict(list)
    for act, value in zip(group.candidates, returns, strict=True):
        at_prompt[act.prompt_digest].append(value)
    means = {prompt: math.fsum(values) / len(values) for prompt, values in at_prompt.items()}
    return [means[act.prompt_digest] for act in group.candidates]
