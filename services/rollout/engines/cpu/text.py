"""Between text and tokens: chat templates in, stop strings out."""

from collections.abc import Callable, Sequence
from typing import Any

from services.rollout.engines.cpu.model import BaseModel
from troupe.errors import InvalidArgumentError
from troupe.tasks.contract import Message


def render_chat(base: BaseModel, messages: Sequence[Message]) -> list[int]:
    """Token ids of the conversation, ready for the assistant's answer."""
    tokenizer = base.tokenizer
    if not messages:
        raise InvalidArgumentError("A chat prompt needs at least one message.")
    if not tokenizer.chat_template:
        raise InvalidArgumentError(
            f"The tokenizer of '{base.path}' has no chat template. Add chat_template.jinja to the "
            "model folder, or send token ids."
        )
    chat = [{"role": message.role, "content": message.content} for message in messages]
    try:
        ids: Any = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except Exception as error:  # templates raise what they like
        raise InvalidArgumentError(
            f"The chat template of '{base.path}' refuses the messages ({error})."
        ) from error
    return [int(token) for token in ids]


def stop_detector(base: BaseModel, stop: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
    """Whether the newest tokens contain a stop string; None when there are no stop strings."""
    strings = [text for text in stop if text]
    if not strings:
        return None
    tail = 4 * max(len(text) for text in strings) + 4

    def hits(token_ids: Sequence[int]) -> bool:
        text = base.tokenizer.decode(list(token_ids[-tail:]), skip_special_tokens=True)
        return any(item in text for item in strings)

    return hits


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string."""
    found = [position for item in stop if item and (position := text.find(item)) >= 0]
    return text[: min(found)] if found else text
