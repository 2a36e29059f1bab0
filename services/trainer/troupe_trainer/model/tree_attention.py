"""Attention among the tokens of each block alone, for all blocks of a micro-batch side by side.

Long blocks are segments (``segment_attention``); the others are trees, which are attended to under
a mask.

Owns the layout of attention: every other layer computes the M tokens of a micro-batch as one
sequence without padding; only here are they set side by side, block by block, so that attention
costs the squares of the blocks' lengths and not the square of their sum. Never sees log
probabilities or groups.

Shape suffixes: M tokens of a micro-batch, P tokens of a part of it, B blocks of a part, T tokens
of its longest block, H heads, S size of a head.
"""
# ruff: noqa: N815 (tensor names carry shape suffixes)

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from troupe.errors import InvalidArgumentError
from troupe_trainer.model.packing import Ints, Microbatch
from troupe_trainer.model.segment_attention import Segments

NAME = "troupe_tree"
"""Of this attention among those of transformers."""
ALIKE = 0.8
"""Blocks that are attended to together are at least this long, of the longest of them."""
CELLS_PER_PART = 1 << 24
"""Largest mask that exists at once (64 MiB in float32), unless one block alone needs more."""


def visible(ends_B_T: Tensor) -> Tensor:
    """Which token of a block sees which, of shape B, T, T; see ``packing.Block.ends_B``."""
    places_T = torch.arange(ends_B_T.shape[1], device=ends_B_T.device)
    is_before_T_T = places_T[None, :] <= places_T[:, None]
    return is_before_T_T & (places_T[None, :, None] < ends_B_T[:, None, :])


def bias_of(ends_B_T: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias of the scores, of shape B, 1, T, T: 0 where a token sees another, else -inf."""
    sees = visible(ends_B_T)[:, None]
    bias = torch.zeros(sees.shape, dtype=dtype, device=ends_B_T.device)
    return bias.masked_fill_(~sees, float("-inf"))


@dataclass(frozen=True, slots=True)
class TreePart:
    """Blocks of about the same length. ``tokens_BT`` and ``places_P`` lead from the part's tokens
    to its padded blocks and back; None where all blocks are equally long."""

    tokens: slice
    shape: tuple[int, int]
    tokens_BT: Tensor | None
    places_P: Tensor | None
    bias_B_1_T_T: Tensor

    def blocks(self, heads_1HMS: Tensor) -> Tensor:
        """The part's blocks, B x H x T x S; padding is a copy of the part's first token."""
        heads_PHS = heads_1HMS[0, :, self.tokens].transpose(0, 1)
        if self.tokens_BT is not None:
            heads_PHS = _Taken.apply(heads_PHS, self.tokens_BT, self.places_P)
        return heads_PHS.unflatten(0, self.shape).transpose(1, 2)

    def flat(self, output_BTHS: Tensor) -> Tensor:
        """The outputs of the part's tokens, P x H x S."""
        found_PHS = output_BTHS.flatten(0, 1)
        return found_PHS if self.places_P is None else found_PHS.index_select(0, self.places_P)


class _Taken(torch.autograd.Function):
    """``index_select`` of blocks from tokens. Padding has no gradient, and every token is in one
    place, so the gradient is taken back from there instead of added up, in a fixed order."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, heads_PHS: Tensor, tokens_BT: Tensor, places_P: Tensor
    ) -> Tensor:
        ctx.save_for_backward(places_P)
        return heads_PHS.index_select(0, tokens_BT)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_BTHS: Tensor
    ) -> tuple[Tensor, None, None]:
        (places_P,) = ctx.saved_tensors
        return grad_BTHS.index_select(0, places_P), None, None


class Tree:
    """The blocks of one micro-batch, for every layer of one pass."""

    def __init__(
        self,
        lengths: Sequence[int],
        ends_M: Ints,
        device: torch.device,
        dtype: torch.dtype,
        segments: Sequence[Sequence[int]] = (),
    ) -> None:
        """``lengths``: of the blocks, longest first; for the rest see ``Microbatch``."""
        self.num_uses = 0
        """By how many layers so far."""
        self._segments = Segments(segments, device) if segments else None
        first = self._segments.num_tokens if self._segments else 0
        self._parts = [
            _part(first + start, part, ends_M, device, dtype)
            for start, part in _parts(lengths[len(segments) :])
        ]

    def attend(self, module: Any, heads: Sequence[Tensor], **kwargs: Any) -> Tensor:
        """1 x M x H x S of queries, keys and values, each 1 x H x M x S."""
        self.num_uses += 1
        outputs: list[Tensor] = []
        if self._segments is not None:
            outputs.append(_attend_segments(self._segments, heads, kwargs.get("scaling")))
        for part in self._parts:
            query, key, value = (part.blocks(head) for head in heads)
            output_BTHS, _ = sdpa_attention_forward(
                module, query, key, value, part.bias_B_1_T_T, **kwargs
            )
            outputs.append(part.flat(output_BTHS))
        if missing := heads[0].shape[2] - sum(map(len, outputs)):  # padding, which sees nothing
            outputs.append(outputs[0].new_zeros(missing, *outputs[0].shape[1:]))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[None]


def _attend_segments(segments: Segments, heads: Sequence[Tensor], scale: float | None) -> Tensor:
    """Outputs of the segments' tokens, which come first; as autocast has PyTorch's attention do."""
    kind = heads[0].device.type
    is_mixed = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if is_mixed else heads[2].dtype
    by_token = [h[0, :, : segments.num_tokens].transpose(0, 1).to(dtype) for h in heads]
    return segments.attend(by_token, scale)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    tree: Tree | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function; without a ``tree`` it is PyTorch's own."""
    if tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    return tree.attend(module, (query, key, value), **kwargs), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def use_tree(causal: Any, policy: str) -> bool:
    """Make the model's layers use this attention; False, with nothing changed, where they can't.

    Some architectures pass no arguments on to their attention: a pass of two tokens shows it. A
    vision tower keeps the attention it has.

    Raises:
        InvalidArgumentError: some layers attend and others do something else.
    """
    is_empty = any(parameter.is_meta for parameter in causal.parameters())
    tried = copy.deepcopy(causal).to("meta") if is_empty else causal  # buffers too
    tree = Tree([2], np.array([2, 2]), tried.device, tried.dtype)
    tokens_1_2 = torch.zeros((1, 2), dtype=torch.long, device=tried.device)
    before = causal.config._attn_implementation
    try:
        for model in (causal, tried):
            model.set_attn_implementation(_for_decoder(model, NAME))
        with torch.no_grad():
            tried.model(input_ids=tokens_1_2, use_cache=False, **arguments(tree))
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError):
        # An unknown argument, a mask that it reads, or attention of its own.
        tree.num_uses = 0
    num_layers = int(causal.config.get_text_config().num_hidden_layers)
    if 0 < tree.num_uses < num_layers:
        raise InvalidArgumentError(
            f"{tree.num_uses} of the {num_layers} layers of policy '{policy}' "
            f"({type(causal).__name__}) are attention; the others would carry one completion into "
            "the next. Use a model whose layers all attend.",
            pointer=f"/policies/{policy}/model",
        )
    if not tree.num_uses:
        causal.set_attn_implementation(_for_decoder(causal, before))
    return bool(tree.num_uses)


def _for_decoder(causal: Any, name: str) -> str | dict[str, str]:
    """The argument of ``set_attn_implementation`` that leaves a vision tower as it is."""
    vision = getattr(causal.config, "vision_config", None)
    if vision is None:
        return name
    return {"text_config": name, "vision_config": vision._attn_implementation}


def arguments(tree: Tree) -> dict[str, Any]:
    """Arguments of a forward pass over ``tree``. A mask of four dimensions keeps transformers
    from making one; it is never read."""
    return {"attention_mask": torch.zeros(1, 1, 1, 1), "tree": tree}


def attended_cells(batch: Microbatch) -> int:
    """Pairs of query and key that are computed for ``batch``, padding and masked ones included."""
    trees = (len(part) * max(part) ** 2 for _, part in _parts(batch.lengths[len(batch.segments) :]))
    long = ((block[0], sum(block[1:]), block) for block in batch.segments)
    causal = (sum(n * (n + 1) // 2 for n in block) + prompt * rest for prompt, rest, block in long)
    return sum(trees) + sum(causal)


def _parts(lengths: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """Each part's first token, and the lengths of its blocks."""
    start = begin = 0
    for number in range(1, len(lengths) + 1):
        longest = lengths[begin]
        is_full = (number + 1 - begin) * longest**2 > CELLS_PER_PART
        if number == len(lengths) or is_full or lengths[number] < ALIKE * longest:
            yield start, lengths[begin:number]
            start, begin = start + sum(lengths[begin:number]), number


def _part(
    start: int, lengths: Sequence[int], ends_M: Ints, device: torch.device, dtype: torch.dtype
) -> TreePart:
    shape = (len(lengths), max(lengths))
    num_tokens = sum(lengths)
    ends_B_T = np.tile(np.arange(1, shape[1] + 1), (shape[0], 1))  # padding sees only itself
    tokens_B_T = np.zeros(shape, dtype=np.int64)
    places: list[Ints] = []
    first = 0
    for number, length in enumerate(lengths):
        ends_B_T[number, :length] = ends_M[start + first : start + first + length] - start - first
        tokens_B_T[number, :length] = np.arange(first, first + length)
        places.append(number * shape[1] + np.arange(length))
        first += length
    is_even = num_tokens == shape[0] * shape[1]
    return TreePart(
        tokens=slice(start, start + num_tokens),
        shape=shape,
        tokens_BT=None if is_even else torch.from_numpy(tokens_B_T.ravel()).to(device),
        places_P=None if is_even else torch.from_numpy(np.concatenate(places)).to(device),
        bias_B_1_T_T=bias_of(torch.from_numpy(ends_B_T).to(device), dtype),
    )
