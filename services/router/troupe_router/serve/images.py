"""Takes the images out of a request's messages, and puts them back where they stood.

The formats of ``troupe.wire`` hold text. An image leaves a mark there that no client can guess.
Owns what a part with an image may hold: a data URL of PNG; nothing is ever fetched.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import MAX_IMAGES, Content, ImagePart, TextPart
from troupe.vision.data_url import image_of_url
from troupe.wire.body import list_of

_KIND = "image_url"


def taken_out(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, ImagePart]]:
    """``body`` with a mark in the place of each image of a user's message; images by mark.

    Raises:
        InvalidArgumentError: an image is no data URL of PNG, or beyond the limits.
    """
    images: dict[str, ImagePart] = {}
    messages = [_without(m, number, images) for number, m in enumerate(list_of(body, "messages"))]
    return ({**body, "messages": messages} if images else dict(body)), images


def put_back(text: str, images: Mapping[str, ImagePart]) -> Content:
    """The content of a message whose text has marks."""
    if not any(mark in text for mark in images):
        return text
    pieces = re.split("(" + "|".join(map(re.escape, images)) + ")", text)
    return tuple(images.get(piece) or TextPart(piece) for piece in pieces if piece)


def _without(message: dict[str, Any], number: int, images: dict[str, ImagePart]) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return message
    parts: list[Any] = []
    for part in content:
        if isinstance(part, dict) and part.get("type") == _KIND:
            if len(images) >= MAX_IMAGES:  # before the next one is decoded
                raise InvalidArgumentError(
                    f"a request has at most {MAX_IMAGES} images", pointer="messages"
                )
            mark = f"[image {secrets.token_hex(16)}]"
            images[mark] = _image(part, number)
            part = {"type": "text", "text": mark}
        parts.append(part)
    return {**message, "content": parts}


def _image(part: Mapping[str, Any], number: int) -> ImagePart:
    source = part.get(_KIND)
    try:
        if not isinstance(source, dict) or source.get("detail", "auto") != "auto":
            raise InvalidArgumentError("image_url must be an object with a url, detail left out")
        return image_of_url(source.get("url"))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"message {number}: {error}", pointer="messages") from error
