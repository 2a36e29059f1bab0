"""Log probabilities of tokens from the decoder's output, whose logits never exist all at once.

Owns the chunks that an output head computes, and that they are computed again in the backward
pass. Never sees a decoder or a batch.

Shape suffixes: N trained tokens, C a chunk of N, D hidden, V vocabulary.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from troupe_trainer.model.logprobs import token_logprobs


def head_logprobs(
    head: nn.Module,
    hidden_N_D: Tensor,
    targets_N: Tensor,
    temperatures_N: Tensor,
    *,
    tokens_per_chunk: int,
    want_entropy_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Each target's log probability and the entropy, as `token_logprobs`; both of shape N."""
    columns = [c.split(tokens_per_chunk) for c in (hidden_N_D, targets_N, temperatures_N)]
    chunks: list[tuple[Tensor, Tensor, Tensor]] = list(zip(*columns, strict=True))
    if len(chunks) == 1:
        return _chunk_logprobs(head, *chunks[0], want_entropy_grad)
    parts = [
        checkpoint(_chunk_logprobs, head, *chunk, want_entropy_grad, use_reentrant=False)
        for chunk in chunks
    ]
    pairs = cast("list[tuple[Tensor, Tensor]]", parts)
    return torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])


def _chunk_logprobs(
    head: nn.Module,
    hidden_C_D: Tensor,
    targets_C: Tensor,
    temperatures_C: Tensor,
    want_entropy_grad: bool,
) -> tuple[Tensor, Tensor]:
    logits_C_V = head(hidden_C_D)
    return token_logprobs(
        logits_C_V, targets_C, temperatures_C, want_entropy_grad=want_entropy_grad
    )
