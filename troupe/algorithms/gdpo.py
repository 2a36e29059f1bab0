"""GDPO: each term of the reward is normalised in its group, and only then are they summed.

Normalising the sum loses which terms it is made of: with two terms of 0 and 1, (1, 0) and (0, 1)
become equal, and a term of large variance drowns the others.

Source: GDPO (arXiv 2601.05242): each reward normalised in its group, weighted sum, normalised over
the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.algorithms.advantages import group_relative, over_the_steps_std
from troupe.algorithms.algorithm import GroupOutcome, Needs
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.options import refuse_penalties
from troupe.errors import InvalidArgumentError
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.params import Params


class GdpoParams(Params):
    """What is drawn."""

    sampling: Literal["tree", "parallel"] = Field(
        default="tree", description="K candidates at every act, or K whole episodes of a task."
    )


class Gdpo(GroupRelative):
    """A = sum over terms of weight * (term - mean) / std, then divided by the step's deviation.

    The terms are the team's reward and the agent's local ones, with the job's weights. The mean of
    A over the step is 0 by construction, so the paper's last step is a division alone; each
    candidate, or trajectory of whole episodes, counts once in its deviation. ``scale: none`` leaves
    both divisions out.
    """

    Params: ClassVar[type[BaseModel] | None] = GdpoParams
    params: GdpoParams
    compares_in_group = False

    def __init__(self, spec: AlgorithmSpec, params: BaseModel | None = None) -> None:
        super().__init__(spec, params)
        self.sampling = self.params.sampling
        why = f"'{spec.kind}' normalises the terms of the reward, and this is none of them"
        refuse_penalties(spec, why)

    @property
    def needs(self) -> Needs:
        """The loss's inputs, and the terms of rewards."""
        return replace(super().needs, terms=True)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """The weighted sum of the terms, each relative to its group; a trajectory counts once.

        Raises InvalidArgumentError if the group has no terms.
        """
        if not group.term_weights:
            raise InvalidArgumentError(
                f"group '{group.group_id}' carries no reward terms; play it with this version of "
                "Troupe, under an algorithm whose `needs` names terms"
            )
        scale = "std" if self.is_scaled else "none"
        keys = self._counted(group)
        sums = dict.fromkeys(keys, 0.0)
        for term, weight in sorted(group.term_weights.items()):
            values = dict.fromkeys(keys, 0.0)
            for key, candidate in zip(keys, group.candidates, strict=True):
                values[key] = candidate.terms.get(term, 0.0)
            relative = group_relative(list(values.values()), scale)
            for key, value in zip(values, relative, strict=True):
                sums[key] += weight * value
        return [sums[key] for key in keys]

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """Divided by the standard deviation of the step."""
        if not self.is_scaled:
            return list(advantages)
        return over_the_steps_std(advantages, [self._counted(group) for group in groups])
