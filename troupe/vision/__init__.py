"""Pictures as a vision-language model reads them: patches, placeholders and positions.

Engines and the trainer both compute from these functions, so that a picture is the same numbers in
both. Needs numpy, and Pillow where a picture must be resized. Never loads a model.
"""

from troupe.vision.layout import Grid, expand, grid_of, num_patches, num_tokens, position_ids
from troupe.vision.model import VisionModel, vision_model_of
from troupe.vision.patches import patches_of

__all__ = [
    "Grid",
    "VisionModel",
    "expand",
    "grid_of",
    "num_patches",
    "num_tokens",
    "patches_of",
    "position_ids",
    "vision_model_of",
]
