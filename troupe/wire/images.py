"""Takes the images out of a request's messages, and puts them back where they stood.

The formats of this room hold text. An image leaves a mark there that no client can guess. Owns what
a part with an image may hold in each format: PNG in base64; nothing is ever fetched.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import MAX_IMAGES, Content, ImagePart, TextPart, described
from troupe.vision.data_url import image_of_url
from troupe.vision.png import own_png
from troupe.wire.body import list_of
from troupe.wire.request import ModelRequest

_FIELDS = ("messages", "input")
"""Where the formats have their messages; the input of responses may also be a text."""
_DETAILS = (None, "auto", "low", "high", "original")
"""What a client may advise of an image's resolution; none is scaled by it."""
MAX_PIXEL_BYTES = 16 * 1024 * 1024
"""Pixels of all images of a request, three bytes each: a PNG of 10 KB may hold 10 MB of them."""


def taken_out(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, ImagePart]]:
    """``body`` with a mark in the place of each image of a user's message; images by mark.

    Raises:
        InvalidArgumentError: an image is no PNG in base64, or beyond the limits.
    """
    images: dict[str, ImagePart] = {}
    changed = {
        field: [_without(m, number, field, images) for number, m in enumerate(list_of(body, field))]
        for field in _FIELDS
        if isinstance(body.get(field), list)
    }
    return ({**body, **changed} if images else dict(body)), images


def overridden_detail(body: Mapping[str, Any]) -> tuple[str, ...]:
    """``detail`` where a part of ``body`` with an image names another one than ``auto``."""
    messages = [message for field in _FIELDS for message in _objects(body.get(field))]
    parts = [part for message in messages for part in _objects(message.get("content"))]
    return ("detail",) if any(_detail_of(part) not in (None, "auto") for part in parts) else ()


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _detail_of(part: Mapping[str, Any]) -> Any:
    source = part.get("image_url")
    return (source if isinstance(source, dict) else part).get("detail")


def _put_back(text: str, images: Mapping[str, ImagePart]) -> Content:
    """The content of a message whose text has marks."""
    if not any(mark in text for mark in images):
        return text
    pieces = re.split("(" + "|".join(map(re.escape, images)) + ")", text)
    return tuple(images.get(piece) or TextPart(piece) for piece in pieces if piece)


def with_images(request: ModelRequest, images: Mapping[str, ImagePart]) -> ModelRequest:
    """``request`` with ``images`` in the places of their marks."""
    if not images:
        return request
    messages = tuple(replace(m, content=_put_back(m.text, images)) for m in request.messages)
    # Without a system message it is the first message's text, whose marks are random.
    system = described(_put_back(request.system, images))
    return replace(request, messages=messages, system=system)


def _without(
    message: dict[str, Any], number: int, field: str, images: dict[str, ImagePart]
) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return message
    parts: list[Any] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _URL_OF:
            if len(images) >= MAX_IMAGES:  # before the next one is decoded
                raise InvalidArgumentError(
                    f"a request has at most {MAX_IMAGES} images", pointer=field
                )
            mark = f"[image {secrets.token_hex(16)}]"
            try:
                images[mark] = image_of_url(_URL_OF[kind](part))
                _check_pixels(images.values())
                own_png(images[mark])  # what is too large as it travels is refused here, not later
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"message {number}: {error}", pointer=field) from error
            part = {"type": "text", "text": mark}
        parts.append(part)
    return {**message, "content": parts}


def _check_pixels(images: Iterable[ImagePart]) -> None:
    size = sum(len(image.pixels) for image in images)
    if size > MAX_PIXEL_BYTES:
        raise InvalidArgumentError(
            f"the images so far have {size} bytes of pixels (3 x width x height); at most "
            f"{MAX_PIXEL_BYTES} are allowed in a request; show fewer images, or smaller ones"
        )


def _url_of_chat(part: Mapping[str, Any]) -> Any:
    source = part.get("image_url")
    if not isinstance(source, dict):
        raise InvalidArgumentError("image_url must be an object with a url")
    _check_detail(part)
    return source.get("url")


def _url_of_responses(part: Mapping[str, Any]) -> Any:
    if part.get("file_id"):
        raise InvalidArgumentError("input_image must have an image_url, no file_id")
    _check_detail(part)
    return part.get("image_url")


def _check_detail(part: Mapping[str, Any]) -> None:
    detail = _detail_of(part)
    if detail not in _DETAILS:
        raise InvalidArgumentError(
            f"detail is {detail!r}; it may be {', '.join(filter(None, _DETAILS))} or left out"
        )


def _url_of_messages(part: Mapping[str, Any]) -> Any:
    source = part.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        raise InvalidArgumentError("the source of an image must be of type base64")
    return f"data:{source.get('media_type')};base64,{source.get('data')}"


_URL_OF = {"image_url": _url_of_chat, "input_image": _url_of_responses, "image": _url_of_messages}
"""The data URL of a part, by its type: chat completions, responses, Anthropic messages."""
