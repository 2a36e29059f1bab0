"""Flash attention over sequences side by side, forward and backward, with PyTorch alone.

On an accelerator the kernels behind ``torch.nn.attention.varlen``; on the CPU PyTorch's flash
kernel, sequence by sequence. Both give the log-sum-exp, and both take output and log-sum-exp for
the backward pass, which the public functions do not allow; so ATen's operators are called. Those of
``varlen`` itself (``torch_attn::``) take other arguments in each release of PyTorch.

Shape suffixes: M tokens, H heads, S size of a head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

_ATEN: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of sequences that lie end to end: where each begins, as int32 on the device."""

    starts: Tensor
    bounds: Sequence[int]
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "Lengths":
        """From the lengths themselves."""
        bounds = [0]
        for length in lengths:
            bounds.append(bounds[-1] + length)
        starts = torch.tensor(bounds, dtype=torch.int32, device=device)
        return cls(starts, bounds, max(lengths, default=0))


def computes(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels take numbers of ``dtype``: on an accelerator only those of 16 bits."""
    return device.type == "cpu" or dtype in (torch.bfloat16, torch.float16)


def is_on_cpu(tensor: Tensor) -> bool:
    """Whether the CPU's kernel computes with ``tensor``."""
    return tensor.device.type == "cpu"


def flash_forward(
    query_M_H_S: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Lengths,
    keys: Lengths,
    *,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Output M x H x S, and log-sum-exp H x M in float32, of each query over its sequence's keys.

    ``key`` and ``value`` may have fewer heads (grouped queries).
    """
    if not is_on_cpu(query_M_H_S):
        return _ATEN._flash_attention_forward(
            query_M_H_S.contiguous(),
            key.contiguous(),
            value.contiguous(),
            queries.starts,
            keys.starts,
            queries.longest,
            keys.longest,
            0.0,
            is_causal,
            return_debug_mask=False,
            scale=scale,
        )[:2]
    output = torch.empty_like(query_M_H_S, memory_format=torch.contiguous_format)
    lse = torch.empty(query_M_H_S.shape[1::-1], dtype=torch.float32)
    for own, seen in _sequences(queries, keys):
        heads = _by_head(query_M_H_S, key, value, own=own, seen=seen)
        part, part_lse = _ATEN._scaled_dot_product_flash_attention_for_cpu(
            *heads, 0.0, is_causal, scale=scale
        )
        output[own] = part[0].transpose(0, 1)
        lse[:, own] = part_lse[0].float()
    return output, lse


def flash_backward(
    grad_M_H_S: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse_H_M: Tensor,
    queries: Lengths,
    keys: Lengths,
    *,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value.

    ``output`` and ``lse_H_M`` may be those of an attention over more keys than these; the result
    is then these keys' part of its gradient.
    """
    if not is_on_cpu(query):
        unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # state of dropout
        return _ATEN._flash_attention_backward(
            grad_M_H_S,
            query.contiguous(),
            key.contiguous(),
            value.contiguous(),
            output,
            lse_H_M,
            queries.starts,
            keys.starts,
            queries.longest,
            keys.longest,
            0.0,
            is_causal,
            unused,
            unused,
            scale=scale,
        )
    grads = [
        torch.empty_like(t, memory_format=torch.contiguous_format) for t in (query, key, value)
    ]
    for own, seen in _sequences(queries, keys):
        heads = _by_head(query, key, value, own=own, seen=seen)
        parts = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_M_H_S[own].transpose(0, 1)[None],
            *heads,
            output[own].transpose(0, 1)[None],
            lse_H_M[None, :, own].contiguous(),
            0.0,
            is_causal,
            scale=scale,
        )
        for grad, part, at in zip(grads, parts, (own, seen, seen), strict=True):
            tokens = part[0].transpose(0, 1)
            grad[at] = tokens.unflatten(1, (grad.shape[1], -1)).sum(2)
    return grads[0], grads[1], grads[2]


def _sequences(queries: Lengths, keys: Lengths) -> Iterator[tuple[slice, slice]]:
    """Each sequence's queries and keys; one without queries is left out."""
    for own, seen in zip(pairwise(queries.bounds), pairwise(keys.bounds), strict=True):
        if own[0] < own[1]:
            yield slice(*own), slice(*seen)


def _by_head(
    query: Tensor, key: Tensor, value: Tensor, *, own: slice, seen: slice
) -> Sequence[Tensor]:
    """1 x H x M x S of each, with a copy of a key's head for each query's head of its group."""
    times = query.shape[1] // key.shape[1]
    heads = [query[own].transpose(0, 1), key[seen].transpose(0, 1), value[seen].transpose(0, 1)]
    if times > 1:
        heads[1:] = [head.repeat_interleave(times, dim=0) for head in heads[1:]]
    return [head[None] for head in heads]
