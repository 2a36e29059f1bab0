"""Drawing one token for every row of a batch from exactly the distribution that is reported.

Owns temperature, top-k, top-p and the inverse CDF, vectorised over rows. Holds no generator
state: the caller brings one uniform number for each row, so that a row's draw never depends on
what else is in the batch. Legend: R rows, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

UNIFORM_BLOCK = 64
"""Uniforms that a row holds at once; a longer completion draws the next block."""


@dataclass(frozen=True, slots=True)
class Filters:
    """How each row samples: temperature 0 is greedy, top_k 0 and top_p 1 keep all tokens."""

    temperature_R: Tensor  # noqa: N815
    top_k_R: Tensor  # noqa: N815
    top_p_R: Tensor  # noqa: N815
    any_filtered: bool
    """False when every row keeps all tokens (spares a sort)."""


def candidate_stream(seed: int, index: int) -> np.random.Generator:
    """The uniforms of candidate ``index`` of a request; one is used for each token."""
    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), index]))


def sample(logits_RV: Tensor, filters: Filters, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    """One token and its log-probability for each row.

    Args:
        logits_RV: float32.
        filters: How each row samples.
        uniforms_R: float64 in [0, 1), one draw for each row.

    Returns:
        Tokens (R, int64) and natural-log probabilities (R, float32) under the distribution
        after temperature, top-k and top-p, renormalised. A greedy row reports the plain softmax.
    """
    is_greedy_R = filters.temperature_R == 0.0
    divisor_R = torch.where(is_greedy_R, 1.0, filters.temperature_R)
    logprobs_RV = torch.log_softmax(logits_RV / divisor_R[:, None], dim=-1)
    if filters.any_filtered:
        logprobs_RV = _filtered(logprobs_RV, filters, is_greedy_R)
    cdf_RV = logprobs_RV.double().exp_().cumsum(-1)
    total_R1 = cdf_RV[:, -1:].contiguous()
    drawn_R1 = torch.searchsorted(cdf_RV, uniforms_R[:, None] * total_R1, right=True)
    last_R1 = torch.searchsorted(cdf_RV, total_R1)
    drawn_R = torch.minimum(drawn_R1, last_R1)[:, 0]
    tokens_R = torch.where(is_greedy_R, logits_RV.argmax(-1), drawn_R)
    return tokens_R, logprobs_RV.gather(1, tokens_R[:, None])[:, 0]


def _filtered(logprobs_RV: Tensor, filters: Filters, is_greedy_R: Tensor) -> Tensor:
    """Keep the top k, then the smallest set of those with mass top_p; renormalise."""
    vocabulary = logprobs_RV.shape[1]
    keeps_all_R = filters.top_k_R == 0
    k_R = torch.where(keeps_all_R, vocabulary, filters.top_k_R)
    sorted_RV, order_RV = logprobs_RV.sort(dim=-1, descending=True, stable=True)
    rank_V = torch.arange(vocabulary, device=logprobs_RV.device)
    sorted_RV = sorted_RV.masked_fill(rank_V[None] >= k_R[:, None], -torch.inf)
    mass_RV = torch.softmax(sorted_RV.double(), dim=-1)
    before_RV = mass_RV.cumsum(-1) - mass_RV
    sorted_RV = sorted_RV.masked_fill(before_RV >= filters.top_p_R[:, None], -torch.inf)
    kept_RV = torch.empty_like(logprobs_RV).scatter_(1, order_RV, sorted_RV)
    is_plain_R = is_greedy_R | (keeps_all_R & (filters.top_p_R >= 1.0))
    kept_RV = torch.log_softmax(kept_RV, dim=-1)
    return torch.where(is_plain_R[:, None], logprobs_RV, kept_RV)
