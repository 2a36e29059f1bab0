"""The base model of a policy as its files have it, before any adapter and any training.

Owns where it comes from (read whole, left empty for ranks to read their rows, or shared with
another policy) and what is noted of it as it was found. Never sees an adapter, ranks or batches.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.vision.model import VisionModel
from troupe_trainer.model.base_digest import base_digest
from troupe_trainer.model.kernels import Kernels
from troupe_trainer.model.loading import (
    Unfilled,
    empty_causal,
    load_causal,
    refuse_architecture,
    same_weights,
)
from troupe_trainer.model.tree_attention import use_tree
from troupe_trainer.model.vision import freeze, vision_model


class HasBase(Protocol):
    """A policy's model whose loaded base another policy may share."""

    base_digest: str

    def base_again(self) -> Any:
        """New modules of the base; the weights are shared."""
        ...


@dataclass(frozen=True, slots=True)
class BaseModel:
    """transformers' model, ready for an adapter.

    ``bare``: the same weights in modules that no adapter enters, for other policies; None where
    they can't share. ``unfilled``: where parameters are on "meta", with their ``places``.
    """

    causal: Any
    digest: str
    vision: VisionModel | None
    has_tree: bool
    bare: Any
    unfilled: Unfilled | None
    places: list[tuple[nn.Module, str, str]]


def base_model(
    policy: str,
    spec: PolicySpec,
    device: torch.device,
    kernels: Kernels,
    *,
    kin: HasBase | None,
    is_spread: bool,
) -> BaseModel:
    """The base of ``policy``: of ``kin`` if there is one, left empty if ``is_spread`` and it can.

    Raises as `PolicyModel` does.
    """
    refuse_architecture(policy, spec)
    unfilled = empty_causal(policy, spec, kernels) if is_spread else None
    if unfilled is not None:
        causal = unfilled.causal
    elif kin is not None:
        causal = kin.base_again()
    else:
        causal = load_causal(policy, spec, device, kernels)
    vision = vision_model(spec.model)
    freeze(causal, policy, is_trained=spec.train.vision)
    has_tree = not kernels.is_packed and use_tree(causal, policy)
    stored = None if unfilled is None else unfilled.stored
    digest = base_digest(causal, spec.model, stored) if kin is None else kin.base_digest
    places = [] if unfilled is None else unfilled.places()
    is_bare = isinstance(spec.train, LoraSpec) and unfilled is None
    bare = same_weights(causal) if is_bare else None
    return BaseModel(causal, digest, vision, has_tree, bare, unfilled, places)
