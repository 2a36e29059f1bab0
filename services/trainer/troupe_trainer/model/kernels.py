"""Chooses the kernels that compute the model: those installed that fit the device.

None is required. Every choice computes the same function; only speed and memory differ.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers.utils.import_utils import is_flash_attn_2_available, is_liger_kernel_available

from troupe.spec.policy import PolicySpec

LIGER = {
    "rope": True,
    "rms_norm": True,
    "swiglu": True,
    "cross_entropy": False,
    "fused_linear_cross_entropy": False,
}
"""Liger's parts of the decoder; its losses are left out, for the head is computed here."""

AttentionChoice = Literal["auto", "tree", "packed"]


@dataclass(frozen=True, slots=True)
class Kernels:
    """``attention`` is transformers' name. ``is_packed``: plain sequences side by side, as
    variable-length kernels want them, and no tree with its mask of T x T."""

    attention: str = "sdpa"
    is_packed: bool = False
    has_liger: bool = False
    is_compiled: bool = False
    """torch.compile of MLPs and norms; see ``compiled``."""

    def patch(self, model: Any) -> None:
        """Put Liger's kernels into ``model``."""
        if self.has_liger:
            from transformers.integrations.liger import apply_liger_kernel

            apply_liger_kernel(model, LIGER)


PLAIN = Kernels()


def choose(
    policy: PolicySpec, device: str, attention: AttentionChoice, *, is_compiled: bool = False
) -> Kernels:
    """Flash attention for bfloat16 on an accelerator where it is installed, else the tree.

    ``attention`` "tree" or "packed" overrides it; packed without flash attention is PyTorch's.
    ``is_compiled``: torch.compile takes the place of Liger's kernels.
    """
    is_accelerated = torch.device(device).type == "cuda"
    is_half = policy.dtype == "bfloat16"
    has_flash = is_accelerated and is_half and bool(is_flash_attn_2_available())
    is_packed = has_flash if attention == "auto" else attention == "packed"
    return Kernels(
        attention="flash_attention_2" if is_packed and has_flash else "sdpa",
        is_packed=is_packed,
        has_liger=is_accelerated and not is_compiled and bool(is_liger_kernel_available()),
        is_compiled=is_compiled,
    )
