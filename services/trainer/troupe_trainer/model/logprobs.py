"""Log probability and entropy of tokens from their logits, with few copies of the table.

Owns the arithmetic of the output distribution. Never sees a model or a batch.

Shape suffixes: C tokens of a chunk, V vocabulary.
"""

from typing import Any, cast

import torch
from torch import Tensor

LOGITS_PER_CHUNK = 1 << 24
"""Largest number of logits that exist at once on the CPU (64 MiB in float32)."""
LOGITS_PER_CHUNK_ON_GPU = 1 << 29
"""The same on an accelerator, where a chunk reads the head's weights: 2 GiB in float32."""
_TOKENS_ON_GPU = (2048, 8192)


def tokens_per_chunk(vocabulary_size: int, *, on_cpu: bool) -> int:
    """Tokens whose logits exist at once; on an accelerator 2,048 to 8,192."""
    if on_cpu:
        return max(1, LOGITS_PER_CHUNK // vocabulary_size)
    least, most = _TOKENS_ON_GPU
    return min(most, max(least, LOGITS_PER_CHUNK_ON_GPU // vocabulary_size))


def token_logprobs(
    logits_C_V: Tensor, targets_C: Tensor, temperatures_C: Tensor, *, want_entropy_grad: bool
) -> tuple[Tensor, Tensor]:
    """Each target's log probability under ``softmax(logits / temperature)``, and the entropy.

    Both are float32; the entropy carries a gradient only if it is wanted. Forward and backward
    hold two tables of C x V where the plain expression holds five.
    """
    apply: Any = _TokenLogprobs.apply
    logprobs_C, entropy_C = apply(logits_C_V, targets_C, temperatures_C)
    if not want_entropy_grad:
        entropy_C = cast("Tensor", entropy_C).detach()
    return logprobs_C, entropy_C


class _TokenLogprobs(torch.autograd.Function):
    """With p = softmax(z), z = logits / temperature: log p[target] = z[target] - logsumexp(z), and
    H = logsumexp(z) - sum(p z). d log p[t] / dz = 1[t] - p; dH / dz = -p (log p + H).
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, logits_C_V: Tensor, targets_C: Tensor, temperatures_C: Tensor
    ) -> tuple[Tensor, Tensor]:
        scaled_C_V = logits_C_V.to(torch.float32, copy=True).div_(temperatures_C[:, None])
        total_C = torch.logsumexp(scaled_C_V, dim=-1)
        log_C_V = scaled_C_V.sub_(total_C[:, None])
        logprobs_C = log_C_V.gather(1, targets_C[:, None])[:, 0].clone()
        entropy_C = -(log_C_V.exp().mul_(log_C_V)).sum(dim=-1)
        ctx.save_for_backward(log_C_V, entropy_C, targets_C, temperatures_C)
        ctx.dtype = logits_C_V.dtype
        ctx.set_materialize_grads(False)
        return logprobs_C, entropy_C

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_logprobs_C: Tensor | None, grad_entropy_C: Tensor | None
    ) -> tuple[Tensor, None, None]:
        log_C_V, entropy_C, targets_C, temperatures_C = ctx.saved_tensors
        prob_C_V = log_C_V.exp()
        of_entropy_C_V = None
        if grad_entropy_C is not None:
            of_entropy_C_V = log_C_V.add(entropy_C[:, None]).mul_(prob_C_V)
            of_entropy_C_V.mul_(-grad_entropy_C[:, None])
        if grad_logprobs_C is None:
            grad_logprobs_C = torch.zeros_like(entropy_C)
        grad_C_V = prob_C_V.mul_(-grad_logprobs_C[:, None])
        grad_C_V.scatter_add_(1, targets_C[:, None], grad_logprobs_C[:, None])
        if of_entropy_C_V is not None:
            grad_C_V.add_(of_entropy_C_V)
        return grad_C_V.div_(temperatures_C[:, None]).to(ctx.dtype), None, None
