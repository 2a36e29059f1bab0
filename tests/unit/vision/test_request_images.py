"""Images of a request: taken out of its messages within the limits, and put back."""

import base64
import io
import random
from typing import Any

import pytest
from PIL import Image

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import MAX_PNG_BYTES, MAX_SIDE, ImagePart, TextPart, image_name
from troupe.vision.data_url import data_url
from troupe.wire import chat, responses
from troupe.wire.images import overridden_detail, taken_out, with_images
from troupe.wire.request import ModelRequest

BLACK = ImagePart(28, 28, bytes(3 * 28 * 28))


def _part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _asked(*parts: dict[str, Any]) -> ModelRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    shown, images = taken_out(body)
    return with_images(chat.read(shown), images)


@pytest.mark.parametrize("kind", [{}, []])
def test_part_when_its_type_is_no_text_then_is_refused(kind: object) -> None:
    with pytest.raises(InvalidArgumentError, match="is not text"):
        _asked({"type": kind})


def test_request_when_its_images_have_too_many_pixels_together_then_is_refused() -> None:
    large = _part(data_url(ImagePart(MAX_SIDE, MAX_SIDE, bytes(3 * MAX_SIDE * MAX_SIDE))))
    assert len(_asked(large).images) == 1
    with pytest.raises(InvalidArgumentError, match="at most 16777216 are allowed"):
        _asked(large, large)


def test_image_when_it_is_too_large_in_the_form_made_here_then_is_refused() -> None:
    rng, side, file = random.Random(1), 700, io.BytesIO()
    few_colours = Image.frombytes("P", (side, side), rng.randbytes(side * side))
    few_colours.putpalette(rng.randbytes(3 * 256))
    few_colours.save(file, "PNG")
    assert len(file.getvalue()) < MAX_PNG_BYTES
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    with pytest.raises(InvalidArgumentError, match=r"message 0: .* bytes as PNG"):
        _asked(_part(url))


def test_request_when_it_has_no_system_message_then_no_random_mark_stands_for_it() -> None:
    request = _asked({"type": "text", "text": "See "}, _part(data_url(BLACK)))
    assert request.system == f"See {image_name(BLACK)}"
    assert request.messages[0].content == (TextPart("See "), BLACK)


@pytest.mark.parametrize("detail", ["low", "high", "original", "auto", None])
def test_detail_when_named_then_the_image_is_shown_as_it_is_and_the_advice_is_told(
    detail: str | None,
) -> None:
    told = () if detail in ("auto", None) else ("detail",)
    url = data_url(BLACK)
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    item = {"type": "input_image", "image_url": url, "detail": detail}
    for wire, field, shown in ((chat, "messages", part), (responses, "input", item)):
        body = {"model": "m", field: [{"role": "user", "content": [shown]}]}
        assert overridden_detail(body) == told
        changed, images = taken_out(body)
        assert with_images(wire.read(changed), images).images == (BLACK,)


def test_detail_when_it_is_not_known_then_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": data_url(BLACK), "detail": "best"}}
    with pytest.raises(InvalidArgumentError, match="detail is 'best'; it may be auto, low, high"):
        _asked(part)
