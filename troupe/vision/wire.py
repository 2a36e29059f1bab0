"""The parts of messages on the wires: text and references in place, each image once in a table.

Owns ``ContentPart`` and ``ImageData``; every message that carries contents uses it. A text message
has no parts, so it is on the wire what it was before images existed. Checks what it decodes.
"""

from collections.abc import Iterable, Mapping, Sequence

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import InvalidArgumentError
from troupe.tasks.content import (
    Content,
    ImagePart,
    TextPart,
    check_count,
    check_size,
    images_of,
    writable,
)
from troupe.vision.png import decode_png, encode_png


def parts_to_proto(content: Content) -> list[pb.ContentPart]:
    """The parts of a content with images; none of a text."""
    if isinstance(content, str):
        return []
    return [
        pb.ContentPart(text=writable(part.text))
        if isinstance(part, TextPart)
        else pb.ContentPart(image_digest=part.digest)
        for part in content
    ]


def content_from_proto(
    text: str, parts: Sequence[pb.ContentPart], images: Mapping[str, ImagePart]
) -> Content:
    """The content of a message; raises InvalidArgumentError for an image that did not come."""
    if not parts:
        return text
    return tuple(
        _image(part.image_digest, images)
        if part.WhichOneof("part") == "image_digest"
        else TextPart(part.text)
        for part in parts
    )


def images_to_proto(contents: Iterable[Content]) -> list[pb.ImageData]:
    """Each image of ``contents`` once, in order; raises InvalidArgumentError past the limits."""
    seen = [content for content in contents if not isinstance(content, str)]
    if not seen:
        return []
    images = [image for content in seen for image in images_of(content)]
    if not images:
        return []
    check_count(images)
    return image_table({image.digest: image for image in images}.values())


def image_table(images: Iterable[ImagePart]) -> list[pb.ImageData]:
    """Images with their pixels as PNG."""
    return [
        pb.ImageData(digest=i.digest, width=i.width, height=i.height, png=encode_png(i))
        for i in images
    ]


def images_from_proto(
    table: Sequence[pb.ImageData], *, num_prompts: int = 1
) -> dict[str, ImagePart]:
    """Images by digest; raises InvalidArgumentError when one is not what its entry says.

    The table is that of ``num_prompts`` prompts.
    """
    if not table:
        return {}
    check_count(table, num_prompts)
    return {entry.digest: image_from_proto(entry) for entry in table}


def image_from_proto(entry: pb.ImageData) -> ImagePart:
    """One image; raises InvalidArgumentError when its size or digest is another than it says."""
    check_size(entry.width, entry.height)
    image = decode_png(entry.png)
    if (image.width, image.height, image.digest) != (entry.width, entry.height, entry.digest):
        raise InvalidArgumentError(
            f"The image {entry.digest[:12]!r} of {entry.width} x {entry.height} holds other "
            f"pixels: {image.digest[:12]} of {image.width} x {image.height}."
        )
    return image


def _image(digest: str, images: Mapping[str, ImagePart]) -> ImagePart:
    if digest not in images:
        raise InvalidArgumentError(f"The image {digest[:12]!r} of a message did not come with it.")
    return images[digest]
