"""Sums of a number of each token over the tokens of each candidate.

Owns the way from micro-batches, which hold completions in any order, back to groups. Never sees a
model.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from troupe_trainer.model.packing import Microbatch
from troupe_trainer.model.shares import Dealt, Share
from troupe_trainer.samples import CreditedGroup


def sums_of(share: Share, values_of: Callable[[Microbatch], Tensor]) -> NDArray[Any]:
    """For each completion of ``share``, the sum of what ``values_of`` gives for its tokens."""
    parts: list[NDArray[Any]] = [np.empty(0)]
    for batch, _ in share.microbatches():
        values_N, count = values_of(batch), len(batch.samples)
        parts.append(np.bincount(batch.sequence_N, values_N.numpy(), minlength=count))
    return np.concatenate(parts)


def by_candidate(
    groups: Sequence[CreditedGroup], dealt: Dealt, sums: Sequence[Tensor]
) -> list[list[float]]:
    """For each of ``groups``, the sum of each candidate in index order.

    ``sums`` are those of each rank's share in ``dealt``. 0 for a candidate that is not among its
    group's samples.
    """
    totals = [[0.0] * len(group.record.candidates) for group in groups]
    place = {
        id(sample): (row, sample.index)
        for row, group in zip(totals, groups, strict=True)
        for prompt in group.prompts
        for sample in prompt.samples
    }
    for shares, values in zip(dealt.shares, sums, strict=True):
        for sample, value in zip(shares[0].samples(), values.tolist(), strict=True):
            row, index = place[id(sample)]
            row[index] = value
    return totals
