"""Tree-GRPO: episodes that share their first acts, compared in their tree and over all trees.

K / trees episodes of each tree begin with the same acts, which cost tokens once. Where they part,
their outcomes say which of two acts was better, although only the end is paid.

An act that several episodes of a tree share is trained with each of them, and so counts with the
sum of their advantages, as in the paper's code.

Source: Tree-GRPO (arXiv 2509.21240): A = A in the tree + A over the trees, each of them GRPO's.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from troupe.algorithms.advantages import group_relative
from troupe.algorithms.algorithm import GroupOutcome
from troupe.algorithms.base import GroupRelative
from troupe.samplers.forest import ForestParams, ForestSampler
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError


class TreeGrpo(GroupRelative):
    """(R - mean of the tree) / std of the tree + (R - mean of all) / std of all.

    R is the return of an episode for the agent. A tree in which the agent acted in one episode
    alone compares nothing and adds 0.

    Example: unscaled, trees with the returns 1, 0 and 1, 1: 1/2 + 1/4, -1/2 - 3/4, 1/4 and 1/4.
    """

    Params: ClassVar[type[BaseModel] | None] = ForestParams
    params: ForestParams

    def __init__(self, spec: AlgorithmSpec, params: BaseModel | None = None) -> None:
        super().__init__(spec, params)
        leaves, rest = divmod(spec.group_size, self.params.trees)
        rounds = self.params.rounds
        if rest or leaves < 2 or (leaves - 1) % rounds:
            message = (
                f"{spec.group_size} episodes are not {self.params.trees} trees that begin with one "
                f"episode and grow in {rounds} equal rounds; give trees * (1 + rounds * n), such "
                f"as {self.params.trees * (1 + 2 * rounds)}"
            )
            raise SpecInvalidError([Issue("/algorithm/group_size", message)])

    def sampler(self) -> ForestSampler:
        """The trees of a ticket."""
        return ForestSampler(self._spec.group_size, self.params)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """One per act; every episode counts once."""
        scale = "std" if self.is_scaled else "none"
        tree_of = self.sampler().tree_of
        returns = {act.trajectory: act.reward for act in group.candidates}
        relative = dict(zip(returns, group_relative(list(returns.values()), scale), strict=True))
        for tree in {tree_of(trajectory) for trajectory in returns}:
            leaves = [trajectory for trajectory in returns if tree_of(trajectory) == tree]
            within = group_relative([returns[leaf] for leaf in leaves], scale)
            for leaf, value in zip(leaves, within, strict=True):
                relative[leaf] += value
        return [relative[act.trajectory] for act in group.candidates]
