"""Drawing one token for every row of a batch from exactly the distribution that is reported.

Owns temperature, top-k, top-p and the inverse CDF, vectorised over rows. Holds no generator
state: the caller brings one uniform number for each row, so that a row's draw never depends on
what else is in the batch. Legend: R rows, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

UNIFORM_BLOCK = 64
"""Uniforms that a row holds at once; a longer completion draws the next block."""

BLOCK = 256
"""Tokens of the vocabulary whose weights are summed up together."""


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
    # Not a list: numpy makes one with a number of 2^63 or more a float, which drops its last bits.
    key = np.array([seed & (2**64 - 1), index], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


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
    scaled_RV = logits_RV / divisor_R[:, None]
    if filters.any_filtered:
        scaled_RV = _filtered(scaled_RV, filters, is_greedy_R)
    largest_R1 = scaled_RV.amax(-1, keepdim=True)
    weights_RV = scaled_RV.sub(largest_R1).exp_()
    drawn_R, total_R = _drawn(weights_RV, uniforms_R)
    tokens_R = torch.where(is_greedy_R, logits_RV.argmax(-1), drawn_R)
    chosen_R1 = scaled_RV.gather(1, tokens_R[:, None]) - largest_R1
    return tokens_R, (chosen_R1[:, 0] - total_R.log()).float()


def _drawn(weights_RV: Tensor, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    """The token at which the sum of weights passes the uniform's share of all, and their sum.

    First the block of the vocabulary is found, then the token in it, so that sums in double
    precision, which cost more than the weights, run over blocks and not over tokens.
    """
    if missing := -weights_RV.shape[1] % BLOCK:
        weights_RV = F.pad(weights_RV, (0, missing))
    weights_RNB = weights_RV.unflatten(1, (-1, BLOCK))
    ends_RN = weights_RNB.sum(-1, dtype=torch.float64).cumsum(-1)
    total_R1 = ends_RN[:, -1:].contiguous()
    target_R1 = uniforms_R[:, None] * total_R1
    block_R1 = _first_beyond(ends_RN, target_R1)
    rows_R = torch.arange(len(weights_RV), device=weights_RV.device)
    inside_RB = weights_RNB[rows_R, block_R1[:, 0]].double().cumsum(-1)
    before_R1 = ends_RN.gather(1, block_R1) - inside_RB[:, -1:]
    token_R1 = _first_beyond(inside_RB, (target_R1 - before_R1).clamp_(min=0.0))
    return (block_R1 * BLOCK + token_R1)[:, 0], total_R1[:, 0]


def _first_beyond(ends_RN: Tensor, target_R1: Tensor) -> Tensor:
    """The first place whose running sum is beyond the target, or else the last that adds to it."""
    found_R1 = torch.searchsorted(ends_RN, target_R1, right=True)
    return torch.minimum(found_R1, torch.searchsorted(ends_RN, ends_RN[:, -1:].contiguous()))


def _filtered(scaled_RV: Tensor, filters: Filters, is_greedy_R: Tensor) -> Tensor:
    """Keep the top k, then the smallest set of those with mass top_p; the others get -inf."""
    vocabulary = scaled_RV.shape[1]
    keeps_all_R = filters.top_k_R == 0
    k_R = torch.where(keeps_all_R, vocabulary, filters.top_k_R)
    sorted_RV, order_RV = scaled_RV.sort(dim=-1, descending=True, stable=True)
    rank_V = torch.arange(vocabulary, device=scaled_RV.device)
    sorted_RV = sorted_RV.masked_fill(rank_V[None] >= k_R[:, None], -torch.inf)
    mass_RV = torch.softmax(sorted_RV.double(), dim=-1)
    before_RV = mass_RV.cumsum(-1) - mass_RV
    sorted_RV = sorted_RV.masked_fill(before_RV >= filters.top_p_R[:, None], -torch.inf)
    kept_RV = torch.empty_like(scaled_RV).scatter_(1, order_RV, sorted_RV)
    is_plain_R = is_greedy_R | (keeps_all_R & (filters.top_p_R >= 1.0))
    return torch.where(is_plain_R[:, None], scaled_RV, kept_RV)
