"""Chat messages with images, as chat templates take them. The tokenizer is the caller's."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from troupe.tasks.content import Content, ImagePart, TextPart
from troupe.tasks.family import Message
from troupe.vision.layout import Grid, expand, grid_of
from troupe.vision.model import VisionModel


def template_messages(
    tokenizer: Any, messages: Sequence[Message], vision: VisionModel
) -> list[dict[str, Any]]:
    """``messages`` for ``apply_chat_template``, with no text that reads as an image.

    A chat template writes an image as tokens with a name, and the tokenizer reads such a name in an
    agent's text as the token. A space after its first letter makes it ordinary text.
    """
    names: list[str] = tokenizer.convert_ids_to_tokens(sorted(vision.vision_token_ids))
    return [{"role": m.role, "content": _content(m.content, names)} for m in messages]


def expanded_prompt(
    token_ids: Sequence[int], images: Sequence[ImagePart], vision: VisionModel
) -> tuple[list[int], list[Grid]]:
    """The rendered ids with each image's tokens, and the grid of each image.

    Raises:
        InvalidArgumentError: the placeholders are not one for each image.
    """
    grids = [grid_of(image.width, image.height, vision) for image in images]
    return expand(token_ids, grids, vision), grids


def _content(content: Content, names: Sequence[str]) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return _harmless(content, names)
    return list(_parts(content, names))


def _parts(content: Content, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Texts side by side are one: a name could be spread over both."""
    for is_text, parts in groupby(content, lambda part: isinstance(part, TextPart)):
        if is_text:
            text = "".join(part.text for part in parts if isinstance(part, TextPart))
            yield {"type": "text", "text": _harmless(text, names)}
        else:
            yield from ({"type": "image"} for _ in parts)


def _harmless(text: str, names: Sequence[str]) -> str:
    for name in names:
        text = text.replace(name, f"{name[0]} {name[1:]}")
    return text
