"""The tensors of a model that replicas are sent: an adapter, or every weight once.

Owns names and number formats. Never gathers, copies or sends.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from peft import PeftModel, get_peft_model_state_dict
from torch import Tensor


def published(module: Any, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in ``dtype``, made when it is asked for; spread over ranks as the model is."""
    if isinstance(module, PeftModel):
        # No embedding is ever adapted or resized; peft would ask the hub each time whether one is.
        state = get_peft_model_state_dict(module, save_embedding_layers=False)
        tied = set[str]()
    else:
        state = cast("dict[str, Tensor]", module.state_dict())
        tied = set(module.all_tied_weights_keys or ())
    for name, tensor in state.items():
        if name not in tied:
            kept = tensor.detach()
            yield name, kept.to(dtype) if kept.is_floating_point() else kept
