"""A digest that identifies the base model under an adapter or a critic.

An adapter's tensors fit every base of the same shapes, so shapes alone don't tell one base from
another. Owns what is hashed: the model's settings, and every tensor's name, shape and a sample of
its numbers. Never reads whole files, so it is fast at any size.
"""

import hashlib
import json
from typing import Any

from torch import nn
from transformers import PretrainedConfig

from troupe_trainer.model.stored import StoredTensors

SAMPLED = 1024
"""Numbers of one tensor that are hashed, evenly spread; another training moves every one."""

_OF_NO_MATTER = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype"})
"""Settings that say where a model came from and how it was stored, not what it computes."""


def base_digest(model: nn.Module, source: str, stored: StoredTensors | None = None) -> str:
    """Digest of ``model`` as it was loaded from ``source``, before any training.

    The same for every device and rank; not for another dtype, which the spec names. ``stored`` has
    the numbers of a model that is on "meta".
    """
    digest = hashlib.sha256(_settings(source).encode())
    for name, parameter in sorted(model.named_parameters()):
        step = max(1, parameter.numel() // SAMPLED)
        if stored is None:
            numbers = parameter.detach().flatten()[::step]
        else:
            numbers = stored.sample(name, step).to(parameter.dtype)
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(numbers.float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _settings(source: str) -> str:
    """config.json verbatim, since a newer transformers may add defaults when it parses the file."""
    settings: dict[str, Any] = PretrainedConfig.get_config_dict(source)[0]
    return json.dumps({k: v for k, v in settings.items() if k not in _OF_NO_MATTER}, sort_keys=True)
