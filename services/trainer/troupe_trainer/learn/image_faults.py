"""Decides whether a group's images may be trained on: that all are there, and are what it says.

Owns the reasons that groups with images are refused under. What passes here can be laid out:
the model's side raises on none of it.
"""

from collections.abc import Mapping

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import InvalidArgumentError
from troupe.tasks.content import MAX_IMAGES, ImagePart
from troupe.vision.layout import Grid, grid_of, position_ids
from troupe.vision.model import VisionModel
from troupe.vision.wire import images_from_proto


def image_fault(group: pb.Group, vision: VisionModel | None) -> str | None:
    """The reason why the images of ``group`` must not be trained on, or None.

    ``vision``: how the policy's model takes images; None for one that takes none.
    """
    named = {image.digest for prompt in group.prompts for image in prompt.images}
    sent = {image.digest for image in group.images}
    if vision is None:
        return "no_vision" if named or sent else None
    if any(len(prompt.images) > MAX_IMAGES for prompt in group.prompts):
        return "too_many_images"
    if named - sent:
        return "missing_image"
    if sent - named or len(sent) != len(group.images):
        return "unused_image"
    try:
        images = images_from_proto(group.images, num_prompts=len(group.prompts))
    except InvalidArgumentError:
        return "bad_image"
    faults = (_prompt_fault(prompt, images, vision) for prompt in group.prompts)
    return next((reason for reason in faults if reason), None)


def _prompt_fault(
    prompt: pb.Prompt, images: Mapping[str, ImagePart], vision: VisionModel
) -> str | None:
    """The engine saw the images in the grids that the trainer computes, where its tokens are."""
    try:
        grids = [
            grid_of(i.width, i.height, vision) for i in (images[r.digest] for r in prompt.images)
        ]
    except InvalidArgumentError:
        return "bad_image"
    if grids != [Grid(image.grid_h, image.grid_w) for image in prompt.images]:
        return "image_grid"
    try:
        position_ids(prompt.token_ids, grids, vision)
    except InvalidArgumentError:
        return "image_tokens"
    return None
