"""The memory that the vision tower of a model takes in a trainer. Pure: shapes in, bytes out.

The counts of weights are held to transformers' own models, and what a trained tower keeps of a
patch to its own passes (tests/unit/trainer/test_vision_memory.py). Never imports torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troupe.runtime.engines.presets import ModelShape
from troupe.spec.policy import FullSpec, PolicySpec

KEPT_BYTES = 1 << 28
"""Features of a frozen tower that a trainer keeps, on its device."""
_LARGEST_IMAGE = 16384
"""Patches of the largest image, 1792 x 1792 pixels of 14 x 14."""


@dataclass(frozen=True, slots=True)
class TowerShape:
    """The vision tower of a Qwen2.5-VL or Qwen3-VL.

    ``merged``: patches that are one token; ``out``: width of the decoder; ``num_mergers``: the
    projection to the decoder, and one for each layer of DeepStack.
    """

    hidden: int
    depth: int
    intermediate: int
    out: int
    patch_dim: int
    merged: int = 4
    positions: int = 0
    is_gated: bool = True
    num_mergers: int = 1

    def num_parameters(self) -> int:
        """Weights, but for biases and norms."""
        linear = sum(out * into for out, into in self._linear())
        return linear + (self.patch_dim + self.positions) * self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Weights of an adapter of all linear layers."""
        return sum(rank * (out + into) for out, into in self._linear())

    def kept_a_patch(self, number: int, *, is_full: bool) -> float:
        """Bytes that a layer keeps of a patch for the backward pass, of numbers of ``number``."""
        of_i = (4.0 if self.is_gated else 2.0) * number
        of_d = 11.0 * number
        if self.is_gated:
            of_d = {(2, False): 26.5, (4, False): 44.0, (2, True): 32.0, (4, True): 52.0}[
                number, is_full
            ]
        return of_i * self.intermediate + of_d * self.hidden

    def _linear(self) -> list[tuple[int, int]]:
        h, i, wide = self.hidden, self.intermediate, self.hidden * self.merged
        block = [(3 * h, h), (h, h), *[(i, h)] * (2 if self.is_gated else 1), (h, i)]
        return block * self.depth + [(wide, wide), (self.out, wide)] * self.num_mergers


KNOWN: Mapping[str, TowerShape] = {
    "Qwen2.5-VL-3B": TowerShape(1280, 32, 3420, 2048, 1176),
    "Qwen2.5-VL-7B": TowerShape(1280, 32, 3420, 3584, 1176),
    "Qwen3-VL-4B": TowerShape(
        1024, 24, 4096, 2560, 1536, positions=2304, is_gated=False, num_mergers=4
    ),
    "Qwen3-VL-8B": TowerShape(
        1152, 27, 4304, 4096, 1536, positions=2304, is_gated=False, num_mergers=4
    ),
}
KNOWN_DECODERS: Mapping[str, ModelShape] = {
    "Qwen2.5-VL-3B": ModelShape(2048, 36, 16, 2, 128, 11008, 151936, True, has_qkv_bias=True),
    "Qwen2.5-VL-7B": ModelShape(3584, 28, 28, 4, 128, 18944, 152064, False, has_qkv_bias=True),
    "Qwen3-VL-4B": ModelShape(2560, 36, 32, 8, 128, 9728, 151936, True, has_qk_norm=True),
    "Qwen3-VL-8B": ModelShape(4096, 36, 32, 8, 128, 12288, 151936, False, has_qk_norm=True),
}
"""Their language models."""


def tower_shape(config: Mapping[str, Any]) -> TowerShape | None:
    """The tower in a model's config.json; None without one."""
    vision: Mapping[str, Any] | None = config.get("vision_config")
    if vision is None:
        return None
    merged = int(vision.get("spatial_merge_size", 2)) ** 2
    patch = int(vision["patch_size"]) ** 2 * int(vision.get("temporal_patch_size", 2))
    return TowerShape(
        hidden=int(vision["hidden_size"]),
        depth=int(vision["depth"]),
        intermediate=int(vision["intermediate_size"]),
        out=int(vision["out_hidden_size"]),
        patch_dim=3 * patch,
        merged=merged,
        positions=int(vision.get("num_position_embeddings") or 0),
        is_gated=config.get("model_type") == "qwen2_5_vl",
        num_mergers=1 + len(vision.get("deepstack_visual_indexes") or ()),
    )


@dataclass(frozen=True, slots=True)
class TowerMemory:
    """Bytes of a tower in one policy's trainer: ``held`` all the time, its ``gradients``,
    ``activations`` that the backward pass keeps, ``image``: while one image is computed, and
    ``gathered``: the copy that each of several ranks computes with."""

    held: float
    gradients: float
    activations: float
    image: float
    gathered: float


NO_TOWER = TowerMemory(0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a model that reads text alone."""


def tower_memory(
    tower: TowerShape | None,
    policy: PolicySpec,
    *,
    patches: int,
    checkpoint_activations: bool,
    has_reference: bool = False,
) -> TowerMemory:
    """The memory of a tower for micro-batches with ``patches`` patches.

    A frozen tower computes image by image without a gradient, and its features are kept; of a
    trained one the activations of all patches are. None of a model that reads text alone.
    """
    if tower is None:
        return NO_TOWER
    number = 2 if policy.dtype == "bfloat16" else 4
    weights = tower.num_parameters()
    is_full = isinstance(policy.train, FullSpec)
    if isinstance(policy.train, FullSpec):
        held = 4.0 * weights * (2 if has_reference else 1)
        trained = weights if policy.train.vision else 0
    else:
        held = float(weights * number)
        trained = tower.lora_parameters(policy.train.rank) if policy.train.vision else 0
    held += trained * (8 if is_full else 12)  # moments, and an adapter's own weights
    gathered = weights * float(4 if is_full else number)
    kept = tower.kept_a_patch(number, is_full=is_full)
    if not policy.train.vision:
        one = _LARGEST_IMAGE * (kept + 4.0 * tower.patch_dim)
        return TowerMemory(held + KEPT_BYTES, 0.0, 0.0, one, gathered)
    if checkpoint_activations:
        layers, copies = tower.hidden * number * tower.depth + kept, 0
    else:
        layers, copies = kept * tower.depth, 2 * weights if is_full and number == 2 else 0
    ends = 5.0 * number * tower.hidden * tower.num_mergers
    ends += number * tower.patch_dim if is_full else 0.0  # the first layer has no adapter
    return TowerMemory(held, 4.0 * trained, patches * (layers + ends) + copies, 0.0, gathered)
