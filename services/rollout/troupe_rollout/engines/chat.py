"""Converts between text and token ids with the model's tokenizer, for every engine."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.spec.policy import TemplateValue
from troupe.tasks.family import Message


def render_chat(
    tokenizer: Any,
    model: str,
    messages: Sequence[Message],
    variables: Mapping[str, TemplateValue] | None = None,
) -> list[int]:
    """Token ids of the conversation, ready for the assistant's answer.

    ``variables`` are the policy's, of the chat template.
    """
    if not messages:
        raise InvalidArgumentError("A chat prompt needs at least one message.")
    if not tokenizer.chat_template:
        raise InvalidArgumentError(
            f"The tokenizer of '{model}' has no chat template. Add chat_template.jinja to the "
            "model folder, or send token ids."
        )
    chat = [{"role": message.role, "content": message.content} for message in messages]
    try:
        ids: Any = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False, **(variables or {})
        )
    except Exception as error:  # templates raise any type
        raise InvalidArgumentError(
            f"The chat template of '{model}' refuses the messages ({error})."
        ) from error
    return [int(token) for token in ids]


def check_template(tokenizer: Any, model: str, variables: Mapping[str, TemplateValue]) -> None:
    """Raises InvalidArgumentError for a variable that the chat template never reads.

    Rendering would ignore it, and a job would train on other prompts than its author meant.
    """
    if not variables:
        return
    template = tokenizer.chat_template
    texts: Sequence[str] = list(template.values()) if isinstance(template, dict) else [template]
    words = {word for text in texts for word in re.findall(r"\w+", text or "")}
    if unknown := sorted(variables.keys() - words):
        raise InvalidArgumentError(
            f"The chat template of '{model}' has no variable '{unknown[0]}'. Remove it from "
            "chat_template_kwargs of the policy, or take a model whose template reads it."
        )


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string."""
    positions = [position for item in stop if item and (position := text.find(item)) >= 0]
    return text[: min(positions)] if positions else text


def stop_detector(tokenizer: Any, stop: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
    """Whether the newest tokens contain a stop string; None when there are no stop strings."""
    strings = [text for text in stop if text]
    if not strings:
        return None
    tail = 4 * max(len(text) for text in strings) + 4

    def hits(token_ids: Sequence[int]) -> bool:
        text = tokenizer.decode(list(token_ids[-tail:]), skip_special_tokens=True)
        return any(item in text for item in strings)

    return hits


def check_token_ids(token_ids: Sequence[int], *, vocab_size: int, model: str, minimum: int) -> None:
    """Raises InvalidArgumentError for too few ids, or one that the model has no embedding for."""
    if len(token_ids) < minimum:
        raise InvalidArgumentError(
            f"{len(token_ids)} token ids were given; at least {minimum} are needed."
        )
    if (largest := max(token_ids)) >= vocab_size or min(token_ids) < 0:
        raise InvalidArgumentError(
            f"Token id {largest if largest >= vocab_size else min(token_ids)} is outside the "
            f"vocabulary of '{model}', which has {vocab_size} ids. Use that model's tokenizer."
        )
