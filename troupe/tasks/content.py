"""What a chat message may hold: text and images, and how large they may be.

Owns the parts of a message's content and the limits on images, which every maker and every reader
of a wire applies. Never encodes or decodes an image file: ``troupe.vision.png`` does.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from troupe.errors import InvalidArgumentError

MAX_IMAGES = 8
"""Images of one prompt."""
MAX_PNG_BYTES = 1024 * 1024
"""Size of one image as PNG, as it travels."""
MIN_SIDE, MAX_SIDE = 28, 1792
"""Width and height of an image, pixels."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text in a message that also holds images."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image: rows of 8-bit RGB pixels, from the top left, three bytes a pixel.

    ``digest`` is the hex SHA-256 of its size and its pixels, so that equal images have one digest
    however they were compressed.

    Raises:
        InvalidArgumentError: a side is out of range, or ``pixels`` has another size.

    Example: ``ImagePart(28, 28, bytes(3 * 28 * 28))``, a black square.
    """

    width: int
    height: int
    pixels: bytes = field(repr=False)
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_size(self.width, self.height)
        if len(self.pixels) != 3 * self.width * self.height:
            raise InvalidArgumentError(
                f"An image of {self.width} x {self.height} has {len(self.pixels)} bytes of pixels; "
                f"give {3 * self.width * self.height}: rows of 8-bit RGB."
            )
        digest = hashlib.sha256(struct.pack("<II", self.width, self.height))
        digest.update(self.pixels)
        object.__setattr__(self, "digest", digest.hexdigest())

    def __hash__(self) -> int:
        return hash(self.digest)


Part = TextPart | ImagePart
Content = str | tuple[Part, ...]
"""Text, or text and images in order."""


def text_of(content: Content) -> str:
    """The text; an image leaves nothing."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))


def writable(text: str) -> str:
    """``text`` as UTF-8 can write it: a lone surrogate, which is no character, becomes "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def images_of(content: Content) -> tuple[ImagePart, ...]:
    """The images, in order."""
    if isinstance(content, str):
        return ()
    return tuple(part for part in content if isinstance(part, ImagePart))


def described(content: Content) -> str:
    """The text with a short name in the place of each image, for people."""
    if isinstance(content, str):
        return content
    return "".join(
        part.text if isinstance(part, TextPart) else image_name(part) for part in content
    )


def image_name(image: ImagePart) -> str:
    """An image in one line: "[image 1f3c0a9b52de 224x224]"."""
    return image_label(image.digest, image.width, image.height)


def image_label(digest: str, width: int, height: int) -> str:
    """The name of the image with this digest and size."""
    return f"[image {digest[:12]} {width}x{height}]"


def check_size(width: int, height: int) -> None:
    """Raises InvalidArgumentError for an image that is too small or too large."""
    if not (MIN_SIDE <= width <= MAX_SIDE and MIN_SIDE <= height <= MAX_SIDE):
        raise InvalidArgumentError(
            f"An image is {width} x {height}; each side must have {MIN_SIDE} to {MAX_SIDE} pixels."
        )


def check_count(images: Sequence[object], num_prompts: int = 1) -> None:
    """Raises InvalidArgumentError for more images than so many prompts may have."""
    if len(images) > MAX_IMAGES * num_prompts:
        whose = "A prompt has" if num_prompts == 1 else f"{num_prompts} prompts have"
        raise InvalidArgumentError(
            f"{whose} {len(images)} images; at most {MAX_IMAGES} are allowed in each prompt."
        )
