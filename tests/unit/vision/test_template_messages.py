"""An agent's text stays text in a prompt with images, whatever it spells."""

from typing import Any

import pytest

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import ImagePart, TextPart
from troupe.tasks.family import Message
from troupe.vision.chat import expanded_prompt, template_messages
from troupe.vision.model import VisionModel
from troupe_trainer.tiny_model.recipe import TinyVisionShape
from troupe_trainer.tiny_model.tokenizer import make_tokenizer, token_id
from troupe_trainer.tiny_model.vision import preprocessor_of

NAMES = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
IMAGE = ImagePart(56, 84, bytes(3 * 56 * 84))


def _tokenizer_and_vision() -> tuple[Any, VisionModel]:
    tokenizer = make_tokenizer(["go"], 64, sees=True)
    tokens = {name: token_id(tokenizer, name) for name in NAMES}
    said = preprocessor_of(TinyVisionShape())
    grey = (0.5, 0.5, 0.5)
    ids = frozenset(tokens.values())
    size = said["size"]
    return tokenizer, VisionModel(
        tokens["<|image_pad|>"], ids, 14, 2, 2, size["shortest_edge"], size["longest_edge"],
        said["rescale_factor"], grey, grey,
    )  # fmt: skip


def _ids(tokenizer: Any, chat: list[dict[str, Any]]) -> list[int]:
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["text", "parts", "spread over two parts", "nested"])
def test_prompt_when_a_text_spells_an_image_token_then_only_the_image_has_tokens(
    name: str, form: str
) -> None:
    tokenizer, vision = _tokenizer_and_vision()
    contents: dict[str, Any] = {
        "text": f"go {name} go",
        "parts": (TextPart(f"go {name}"),),
        "spread over two parts": (TextPart(f"go {name[:5]}"), TextPart(f"{name[5:]} go")),
        "nested": f"{name[:4]}{name}{name[4:]}",
    }
    seen = Message("user", (TextPart("look"), IMAGE))
    messages = [Message("user", contents[form]), seen]
    ids = _ids(tokenizer, template_messages(tokenizer, messages, vision))
    honest = _ids(tokenizer, template_messages(tokenizer, [seen], vision))
    of_images = [token for token in ids if token in vision.vision_token_ids]
    assert of_images == [token for token in honest if token in vision.vision_token_ids]
    assert len(of_images) == 3
    expanded, (grid,) = expanded_prompt(ids, [IMAGE], vision)
    assert (grid.height, grid.width) == (6, 4)
    assert expanded.count(vision.image_token_id) == 6


def test_prompt_when_a_text_is_harmless_then_it_is_unchanged() -> None:
    tokenizer, vision = _tokenizer_and_vision()
    text = "a < b |image_pad|> <|im"
    (message,) = template_messages(tokenizer, [Message("user", text)], vision)
    assert message == {"role": "user", "content": text}


def test_prompt_when_the_template_leaves_out_an_image_then_refused() -> None:
    _, vision = _tokenizer_and_vision()
    with pytest.raises(InvalidArgumentError, match="0 placeholders"):
        expanded_prompt([1, 2, 3], [IMAGE], vision)
