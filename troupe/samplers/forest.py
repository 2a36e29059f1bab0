"""Trees of whole episodes: each begins as one episode and grows from acts that it has.

Decides how many trees there are and where they grow; `episodes.forest` plays them.

Source: Tree-GRPO (arXiv 2509.21240), sampling by rounds of expansion.
"""

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import Field

from troupe.samplers.parallel import ParallelSampler
from troupe.spec.params import Params


class ForestParams(Params):
    """Of the K = ``group_size`` episodes of a task, K / trees are leaves of each tree."""

    trees: int = Field(default=2, ge=1, description="M: trees of one task.")
    rounds: int = Field(
        default=1, ge=1, description="L: rounds in which a tree grows (K / trees - 1) / L episodes."
    )
    expand: Literal["random", "uncertain"] = Field(
        default="random",
        description="Where a tree grows: at any of its inner nodes with equal chances, or before "
        "the acts whose tokens had the lowest mean log probability.",
    )


class ForestSampler(ParallelSampler):
    """K episodes, of which those of one tree share their first acts.

    The trajectories of tree t are t * leaves to t * leaves + leaves - 1; the first of them is the
    episode that the tree grew from.
    """

    def __init__(self, group_size: int, params: ForestParams) -> None:
        super().__init__(group_size)
        self.params = params
        self.leaves = group_size // params.trees
        self.expansions = (self.leaves - 1) // params.rounds

    def tree_of(self, trajectory: int) -> int:
        """The number of the tree that ``trajectory`` is a leaf of."""
        return trajectory // self.leaves

    def nodes_to_expand(self, surprisals: Sequence[float], rng: Random) -> list[int]:
        """Indices of N nodes; ``surprisals`` has one number for each node of the tree.

        "random" may name a node twice, as the paper's code does; "uncertain" does so only where the
        tree has fewer than N nodes.
        """
        if self.params.expand == "random":
            return rng.choices(range(len(surprisals)), k=self.expansions)
        ranked = sorted(range(len(surprisals)), key=lambda node: (-surprisals[node], node))
        return [ranked[place % len(ranked)] for place in range(self.expansions)]
