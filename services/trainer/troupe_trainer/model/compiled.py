"""Compiles what lies between the attentions of a decoder: MLPs and norms, by torch.compile.

Attention is left as it is: it is this trainer's own, and reads the layout of each micro-batch. The
parts see tokens alone, whose number is marked dynamic, so that micro-batches of other sizes do not
compile again; and all layers share one compilation. What is computed changes by rounding alone.
Parameters keep their names and their modules.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from troupe.errors import InvalidArgumentError


def compile_parts(decoder: nn.Module, device: torch.device) -> int:
    """Compile the parts of each layer at their first use; returns how many there are.

    Raises:
        InvalidArgumentError: no compiler is there, or the decoder has no such parts.
    """
    if reason := why_not(device):
        raise InvalidArgumentError(
            f"TROUPE_TRAINER_COMPILED is on and {reason}. Install it, or leave the setting out."
        )
    parts = [
        part
        for layer in decoder.modules()
        if isinstance(layer, GradientCheckpointingLayer)
        for part in layer.children()
        if not attends(part)
    ]
    if not parts:
        raise InvalidArgumentError(
            f"TROUPE_TRAINER_COMPILED is on and {type(decoder).__name__} has no layers whose parts "
            "can be compiled. Leave the setting out for this model."
        )
    for part in parts:
        part.compile(dynamic=True)
    return len(parts)


def attends(part: nn.Module) -> bool:
    """Whether a part of a layer is its attention."""
    return any(
        name.rsplit(".", 1)[-1] in ("q_proj", "qkv_proj") for name, _ in part.named_modules()
    )


def why_not(device: torch.device) -> str:
    """What torch.compile lacks for ``device``; empty where it lacks nothing."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "triton, which compiles for GPUs, is not there"
    from torch._inductor import cpp_builder

    inductor: Any = cpp_builder
    try:
        inductor.get_cpp_compiler()
    except Exception as error:  # of its own kinds, by version
        return f"no C++ compiler is there ({error})"
    return ""
