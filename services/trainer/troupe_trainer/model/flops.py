"""Floating point operations of a training step, and what the device could do: for ``mfu``.

Owns the count. A product of matrices of n, m and k has 2 n m k operations; a backward pass has
twice those of the forward pass, and without gradients of frozen weights once (Kaplan et al.,
arXiv 2001.08361, appendix B; Chowdhery et al., arXiv 2204.02311, appendix B). What is computed
again or masked does not count, nor does a vision tower.
"""

from typing import Any

import torch

from troupe_trainer.model.packing import Microbatch

_TERA = 1e12
PEAK = {
    "B200": 2250 * _TERA,
    "H200": 989 * _TERA,
    "H100 PCIe": 756 * _TERA,
    "H100": 989 * _TERA,
    "A100": 312 * _TERA,
    "L40S": 362 * _TERA,
    "L4": 121 * _TERA,
    "A10": 125 * _TERA,
    "4090": 165 * _TERA,
}
"""Dense bfloat16 operations a second by a part of the device's name, from NVIDIA's data sheets."""


class StepFlops:
    """Counts the operations of micro-batches of one model."""

    def __init__(self, causal: Any, *, is_lora: bool) -> None:
        config = causal.config.get_text_config()
        decoder = getattr(causal.model, "language_model", causal.model)
        layers = getattr(decoder, "layers", decoder).named_parameters()
        self._layers = sum(p.numel() for n, p in layers if p.dim() > 1 and "lora_" not in n)
        self._head = int(config.vocab_size) * int(config.hidden_size)
        size = getattr(config, "head_dim", None)
        heads = int(config.num_attention_heads)
        width = heads * int(size or config.hidden_size // heads)
        self._pair = 4 * width * int(config.num_hidden_layers)
        self._times = 2 if is_lora else 3

    def of(self, batch: Microbatch) -> float:
        """Operations of a forward and backward pass over ``batch``."""
        pairs = float(batch.positions_M.sum()) + len(batch.positions_M)
        linear = len(batch.tokens_M) * self._layers + len(batch.targets_N) * self._head
        return 2.0 * linear * self._times + 3.0 * self._pair * pairs


def peak_flops(device: torch.device) -> float | None:
    """What ``device`` can do in bfloat16, in operations a second; None where it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK.items() if part in name), None)
