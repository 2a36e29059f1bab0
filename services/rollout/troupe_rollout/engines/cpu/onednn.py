"""Linear layers in float32 on the CPU, computed by oneDNN instead of MKL.

PyTorch hands float32 products to MKL, which leaves AVX-512 unused on processors that are not
Intel's: for 32 rows MKL reaches 70 GFLOP/s on a Zen 5 core, and oneDNN, which comes with PyTorch as
well, 140. Owns the choice of layers. Never changes a weight.
"""

from typing import Any

import torch
from torch import Tensor, nn

SMALLEST = 1 << 15
"""Numbers in a weight from which oneDNN's own 10 us a call are repaid by few rows."""
_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""What torch.compile emits for a linear layer on the CPU; there is no public name for it."""


def use_onednn(module: nn.Module) -> None:
    """Let the float32 linear layers of ``module``, which is on the CPU, compute by oneDNN."""
    if _LINEAR is None or not torch.backends.mkldnn.is_available():
        return
    for layer in module.modules():
        if (
            type(layer) is nn.Linear
            and layer.weight.dtype == torch.float32
            and layer.weight.numel() >= SMALLEST
        ):
            layer.__class__ = InferenceLinear


class InferenceLinear(nn.Linear):
    """A layer without gradients. From 2 rows on, a row's numbers depend on that row alone."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer."""
        return _LINEAR(input, self.weight, self.bias, "none", [], "")
