"""Deals a step's groups out to minibatches. Pure: the same groups and seed, the same shares."""

import random
from collections.abc import Sequence

from troupe_trainer.samples import CreditedGroup


def minibatches(
    groups: Sequence[CreditedGroup], count: int, seed: int
) -> list[Sequence[CreditedGroup]]:
    """``count`` shares of equal size (but for the rest), drawn at random; each group is in one.

    Groups arrive ordered by id: every n-th of them could be one agent's alone.
    """
    if count == 1:
        return [groups]
    order = random.Random(seed).sample(range(len(groups)), len(groups))
    return [[groups[place] for place in order[part::count]] for part in range(count)]
