"""The result of a surrogate loss: a loss per token, and metrics."""
# ruff: noqa: N815 (tensor names carry shape suffixes)

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Surrogate:
    """``loss_N`` carries the gradient; ``metric_sums`` are detached sums over tokens."""

    loss_N: Tensor
    metric_sums: dict[str, Tensor]


def clip_counts(
    ratio_N: Tensor, advantages_N: Tensor, clip_low: float, clip_high: float
) -> dict[str, Tensor]:
    """Tokens whose gradient a two-sided clip removes, by side."""
    with torch.no_grad():
        is_low_N = (ratio_N < 1.0 - clip_low) & (advantages_N < 0.0)
        is_high_N = (ratio_N > 1.0 + clip_high) & (advantages_N > 0.0)
        return {"clip_fraction_low": is_low_N.sum(), "clip_fraction_high": is_high_N.sum()}


def sequence_sums(values_N: Tensor, sequence_N: Tensor) -> Tensor:
    """For each token, the sum of ``values_N`` over its own completion (N)."""
    count = int(sequence_N.max()) + 1 if len(sequence_N) else 0
    sums = torch.zeros(count, dtype=values_N.dtype, device=values_N.device)
    return sums.index_add(0, sequence_N, values_N)[sequence_N]
