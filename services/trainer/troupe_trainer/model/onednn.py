"""Linear layers in float32 on the CPU, computed by oneDNN instead of MKL.

PyTorch hands float32 products to MKL, which leaves AVX-512 unused on processors that are not
Intel's: on a Zen 5 core MKL reaches 95 GFLOP/s and oneDNN, which comes with PyTorch as well, 220.
Owns the three products of a layer. Numbers differ from MKL's in their last bits only.

Shape suffixes: M rows, I inputs, O outputs.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SMALLEST = 1 << 14
"""Numbers in a weight from which oneDNN's own 10 us a call are repaid."""
_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""What torch.compile emits for a linear layer on the CPU; there is no public name for it."""


def has_onednn() -> bool:
    """Whether this PyTorch can compute by oneDNN."""
    return _LINEAR is not None and torch.backends.mkldnn.is_available()


def use_onednn(module: nn.Module) -> None:
    """Let every linear layer of ``module`` compute by oneDNN wherever that can be."""
    if not has_onednn():
        return
    for layer in module.modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= SMALLEST:
            layer.__class__ = OneDnnLinear


class OneDnnLinear(nn.Linear):
    """A linear layer; other devices and number formats, and autocast, are left to PyTorch."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer."""
        is_plain = input.dtype is self.weight.dtype is torch.float32
        if not is_plain or input.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        apply: Any = _Products.apply
        return apply(input, self.weight, self.bias)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, input: Tensor, weight_O_I: Tensor, bias_O: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(input, weight_O_I)
        return product(input, weight_O_I, bias_O)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight_O_I = ctx.saved_tensors
        of_input, of_weight, of_bias = ctx.needs_input_grad
        grad_M_O = grad.flatten(0, -2)
        return (
            product(grad, weight_O_I.t()) if of_input else None,
            product(grad_M_O.t(), input.flatten(0, -2).t()) if of_weight else None,
            grad_M_O.sum(0) if of_bias else None,
        )


def padded(values: NDArray[Any], padding: int) -> NDArray[Any]:
    """``values`` up to a number of rows that comes again: at most a sixteenth more, or 15 rows.

    oneDNN compiles a kernel for each number of rows, which takes as long as a small product.
    """
    step = max(16, 1 << max(0, (len(values) - 1).bit_length() - 5))
    return np.pad(values, (0, -len(values) % step), constant_values=padding)


def product(input: Tensor, weight_O_I: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """``input`` times the transposed weight, by oneDNN."""
    return _LINEAR(input, weight_O_I, bias_O, "none", [], "")
