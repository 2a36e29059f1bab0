"""The gradient of a weight that is embedding and output head in one, in one buffer.

PyTorch makes a table of the vocabulary for the head's gradient, another for the embedding's and
adds them up for each micro-batch: of a small model, two thirds of the pages that a pass fetches.
Here the head's gradient is computed into a buffer that is kept, and the embedding's rows are added
there. Owns that buffer. For one process.

Shape suffixes: M tokens, C tokens of a chunk, V vocabulary, D hidden.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from troupe_trainer.model.onednn import has_onednn, product

ROWS = 4096
"""Of the vocabulary that are computed at once: they stay in the cache until they are added."""


class TiedGradient:
    """The kept buffer, and whether it holds a part of the gradient of the present pass."""

    def __init__(self) -> None:
        self._buffer_V_D: Tensor | None = None
        self._is_begun = False
        self._number = 0

    def begin(self) -> int:
        """A new pass begins; returns its number. What one that broke off has left is forgotten."""
        self._is_begun = False
        self._number += 1
        return self._number

    def add_head(self, grad_C_V: Tensor, hidden_C_D: Tensor) -> None:
        """Add the gradient of a chunk of the head's outputs."""
        shape = (grad_C_V.shape[1], hidden_C_D.shape[1])
        if self._buffer_V_D is None:
            self._buffer_V_D = hidden_C_D.new_empty(shape)
        for first in range(0, shape[0], ROWS):
            rows = slice(first, first + ROWS)
            part = product(grad_C_V[:, rows].t(), hidden_C_D.t())
            if self._is_begun:
                self._buffer_V_D[rows].add_(part)
            else:
                self._buffer_V_D[rows].copy_(part)
        self._is_begun = True

    def with_rows(
        self, tokens_M: Tensor, grad_M_D: Tensor, weight_V_D: Tensor, number: int
    ) -> Tensor:
        """The whole gradient, with that of the embedding's outputs; valid until the next pass.

        Without the head's where tokens were looked up again since pass ``number`` began.
        """
        if number != self._number:
            return torch.zeros_like(weight_V_D).index_add_(0, tokens_M, grad_M_D)
        if self._buffer_V_D is None:
            self._buffer_V_D = torch.empty_like(weight_V_D)
        if not self._is_begun:
            self._buffer_V_D.zero_()
        self._is_begun = False
        return self._buffer_V_D.index_add_(0, tokens_M, grad_M_D)


class TiedEmbedding(nn.Embedding):
    """An embedding whose weight the head reads too."""

    gradient: TiedGradient

    def forward(self, input: Tensor) -> Tensor:
        """Look the tokens up."""
        if not torch.is_grad_enabled():
            return super().forward(input)
        apply: Any = _LookUp.apply
        return apply(input, self.weight, self.gradient, self.padding_idx)


class TiedHead(nn.Linear):
    """The head."""

    gradient: TiedGradient

    def forward(self, input: Tensor) -> Tensor:
        """Compute the logits."""
        apply: Any = _Logits.apply
        return apply(input, self.weight, self.gradient)


def join_gradients(causal: Any) -> None:
    """Give the tied embedding and head of ``causal`` one buffer; without effect on other models."""
    embedding: Any = causal.get_input_embeddings()
    head: Any = causal.get_output_embeddings()
    is_plain = type(embedding) is nn.Embedding and isinstance(head, nn.Linear) and has_onednn()
    if not is_plain or head.weight is not embedding.weight or head.bias is not None:
        return
    if embedding.max_norm is not None or embedding.scale_grad_by_freq or embedding.sparse:
        return
    if embedding.weight.requires_grad:
        embedding.__class__, head.__class__ = TiedEmbedding, TiedHead
        _share(embedding, head)


def _share(*layers: Any) -> None:
    gradient = TiedGradient()
    for layer in layers:
        layer.gradient = gradient


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, tokens: Tensor, weight_V_D: Tensor, gradient: TiedGradient, padding: int | None
    ) -> Tensor:
        ctx.save_for_backward(tokens, weight_V_D)
        ctx.gradient, ctx.padding, ctx.number = gradient, padding, gradient.begin()
        return F.embedding(tokens, weight_V_D)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[None, Tensor, None, None]:
        tokens, weight_V_D = ctx.saved_tensors
        tokens_M, grad_M_D = tokens.flatten(), grad.flatten(0, -2)
        if ctx.padding is not None:
            grad_M_D = grad_M_D.masked_fill((tokens_M == ctx.padding)[:, None], 0.0)
        whole = ctx.gradient.with_rows(tokens_M, grad_M_D, weight_V_D, ctx.number)
        return None, whole, None, None


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, hidden: Tensor, weight_V_D: Tensor, gradient: TiedGradient
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight_V_D)
        ctx.gradient = gradient
        return product(hidden, weight_V_D)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, None, None]:
        hidden, weight_V_D = ctx.saved_tensors
        ctx.gradient.add_head(grad.flatten(0, -2), hidden.flatten(0, -2))
        return product(grad, weight_V_D.t()), None, None
