"""Per-token estimates of KL(policy || reference) from samples of the policy.

Source: Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html.
"""

from typing import Literal

import torch
from torch import Tensor


def kl_estimate(
    logprobs_N: Tensor, ref_logprobs_N: Tensor, estimator: Literal["k1", "k2", "k3"]
) -> Tensor:
    """With d = log ref - log pi: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d.

    As values: k1 is unbiased and may be negative, k2 is biased, k3 is unbiased and never negative.
    As terms of a loss on samples of the policy: k2's expected gradient is that of KL(pi || ref),
    k3's is that of KL(ref || pi), k1's is 0.

    Example: a token twice as likely under the policy has k1 = log 2, k3 = 1/2 - 1 + log 2.
    """
    difference_N = ref_logprobs_N - logprobs_N
    if estimator == "k1":
        return -difference_N
    if estimator == "k2":
        return 0.5 * difference_N.square()
    return torch.expm1(difference_N) - difference_N
