"""Activation checkpointing: layers compute their activations again in the backward pass.

Owns how transformers is told to. Never computes anything.
"""

import functools
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def checkpoint_layers(causal: Any) -> None:
    """Let each layer of ``causal`` keep its inputs alone.

    transformers does it in training mode only; the mode is set on the layers alone, so that no
    dropout wakes up inside them.
    """
    again = functools.partial(checkpoint, use_reentrant=False)
    for module in causal.modules():
        if isinstance(module, GradientCheckpointingLayer):
            layer: Any = module
            layer.gradient_checkpointing, layer.training = True, True
            layer._gradient_checkpointing_func = again
