"""Attention of long completions that share a prompt, with no mask: two passes of a flash kernel.

A prompt and its completions are laid side by side as segments. First every segment attends to
itself causally; then the completions attend to their whole prompt. The two results are put
together by their log-sum-exps, as blocks are in flash attention (Dao et al., arXiv 2205.14135,
section 3.1). The gradient of each pass is the kernel's own, given the output and
log-sum-exp of the whole (Liu et al., arXiv 2310.01889, ring attention). So the prompt is computed
once, each query meets exactly the keys that it sees, and memory grows with tokens and not with
their square.

Owns the two passes. Never sees log probabilities or groups.

Shape suffixes: M tokens of all segments, H heads, S size of a head, Q tokens of completions that
share a prompt, K tokens of such prompts.
"""
# ruff: noqa: N815 (tensor names carry shape suffixes)

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from troupe_trainer.model.flash import Lengths, flash_backward, flash_forward


@dataclass(frozen=True, slots=True)
class Crossing:
    """The second pass: places of completions and of prompts, and the lengths of both by block."""

    queries_Q: Tensor
    keys_K: Tensor
    query_lengths: Lengths
    key_lengths: Lengths


class Segments:
    """The segments of the blocks of one micro-batch, for every layer of one pass.

    ``blocks``: the lengths of each block's segments; the first is the prompt that the others see,
    or the only one.
    """

    def __init__(self, blocks: Sequence[Sequence[int]], device: torch.device) -> None:
        self.num_tokens = sum(map(sum, blocks))
        self._own = Lengths.of([length for block in blocks for length in block], device)
        starts = accumulate(map(sum, blocks), initial=0)
        sharing = [(s, block) for s, block in zip(starts, blocks, strict=False) if len(block) > 1]
        self._crossing: Crossing | None = None
        if sharing:
            prompts = [np.arange(start, start + block[0]) for start, block in sharing]
            others = [np.arange(start + b[0], start + sum(b)) for start, b in sharing]
            self._crossing = Crossing(
                queries_Q=torch.from_numpy(np.concatenate(others)).to(device),
                keys_K=torch.from_numpy(np.concatenate(prompts)).to(device),
                query_lengths=Lengths.of([sum(block[1:]) for _, block in sharing], device),
                key_lengths=Lengths.of([block[0] for _, block in sharing], device),
            )

    def attend(self, heads: Sequence[Tensor], scale: float | None) -> Tensor:
        """M x H x S of queries (M x H x S), keys and values (of as many heads or fewer)."""
        size = heads[0].shape[-1]
        apply: Any = _Segmented.apply
        return apply(*heads, self._own, self._crossing, size**-0.5 if scale is None else scale)


class _Segmented(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        own: Lengths,
        crossing: Crossing | None,
        scale: float,
    ) -> Tensor:
        output, lse_H_M = flash_forward(query, key, value, own, own, is_causal=True, scale=scale)
        if crossing is not None:
            places, keys = crossing.queries_Q, crossing.keys_K
            crossed, crossed_lse = flash_forward(
                query[places],
                key[keys],
                value[keys],
                crossing.query_lengths,
                crossing.key_lengths,
                is_causal=False,
                scale=scale,
            )
            own_lse = lse_H_M[:, places]
            both = torch.logaddexp(own_lse, crossed_lse)
            share = (own_lse - both).exp().t()[..., None]
            merged = output[places].float() * share + crossed.float() * (1.0 - share)
            output[places] = merged.to(output.dtype)
            lse_H_M[:, places] = both
        ctx.save_for_backward(query, key, value, output, lse_H_M)
        ctx.layout = (own, crossing, scale)
        return output

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        query, key, value, output, lse_H_M = ctx.saved_tensors
        own, crossing, scale = ctx.layout
        grad = grad.contiguous()
        of_query, of_key, of_value = flash_backward(
            grad, query, key, value, output, lse_H_M, own, own, is_causal=True, scale=scale
        )
        if crossing is not None:
            places, keys = crossing.queries_Q, crossing.keys_K
            more_query, more_key, more_value = flash_backward(
                grad[places],
                query[places],
                key[keys],
                value[keys],
                output[places],
                lse_H_M[:, places].contiguous(),
                crossing.query_lengths,
                crossing.key_lengths,
                is_causal=False,
                scale=scale,
            )
            # A place is named once, so nothing is lost and the order of the sums is fixed.
            of_query[places] = of_query[places] + more_query
            of_key[keys] = of_key[keys] + more_key
            of_value[keys] = of_value[keys] + more_value
        return of_query, of_key, of_value, None, None, None
