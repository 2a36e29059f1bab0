"""Converts between chats and token ids with the model's tokenizer, for every engine."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from troupe.candidates import PromptImage
from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.rendering import LONG_CHARS
from troupe.spec.policy import TemplateValue
from troupe.tasks.content import ImagePart, writable
from troupe.tasks.family import BoundedObservation, Message, observed_images
from troupe.vision.chat import expanded_prompt, template_messages
from troupe.vision.layout import grid_of
from troupe.vision.model import VisionModel
from troupe_rollout.engines.byte_level import byte_table
from troupe_rollout.engines.tool_forms import answer_in_hermes_form
from troupe_rollout.engines.tool_template import (
    TemplateMessages,
    ToolTemplate,
    documents,
    has_tools,
    with_tool_calls,
)


class ChatTemplate:
    """A policy's chats and answers, by its model's tokenizer and chat template.

    ``variables`` are the policy's, of the chat template. In a vision-language model (``vision``)
    the placeholder of an image stands once for each of its tokens.

    Raises:
        InvalidArgumentError: the template reads no such variable.
    """

    def __init__(
        self,
        tokenizer: Any,
        model: str,
        variables: Mapping[str, TemplateValue] | None = None,
        vision: VisionModel | None = None,
    ) -> None:
        check_template(tokenizer, model, variables or {})
        self._tokenizer = tokenizer
        self._bytes = byte_table(tokenizer)
        self._model = model
        self._variables = variables or {}
        self._vision = vision
        self.tools = ToolTemplate(self._rendered, tokenizer)

    def render(self, prompt: Sequence[Message]) -> list[int]:
        """Token ids of the conversation, ready for the assistant's answer."""
        observation = prompt if isinstance(prompt, BoundedObservation) else tuple(prompt)
        if not observation:
            raise InvalidArgumentError("A chat prompt needs at least one message.")
        if not self._tokenizer.chat_template:
            raise InvalidArgumentError(
                f"The tokenizer of '{self._model}' has no chat template. Add chat_template.jinja "
                "to the model folder, or send token ids."
            )
        images = observed_images(observation)
        if self._vision is None:
            refuse_images(images, self._model)
        messages, tools = (
            self.tools.messages(observation) if has_tools(observation) else (observation, ())
        )
        if self._vision is None:
            chat = [{"role": message.role, "content": message.text} for message in messages]
        else:
            chat = template_messages(self._tokenizer, messages, self._vision)
        try:
            text = self._rendered(with_tool_calls(chat, messages), documents(tools), True)
        except Exception as error:  # templates raise any type
            raise InvalidArgumentError(
                f"The chat template of '{self._model}' refuses the messages ({error})."
            ) from error
        # A call's arguments may escape half a character, which no tokenizer encodes.
        token_ids = _encoded(self._tokenizer, writable(text))
        return (
            token_ids
            if self._vision is None
            else expanded_prompt(token_ids, images, self._vision)[0]
        )

    def answer_text(self, token_ids: Sequence[int], stop: Sequence[str], *, calls: bool) -> str:
        """The text of sampled tokens up to the first stop string.

        With ``calls`` the answer may call tools, and does so in Hermes form in the text.
        """
        form = self.tools.form if calls else None
        if form is None:
            return cut_at_stop(self._decoded(token_ids), stop)
        text = cut_at_stop(self._with_mark(list(token_ids), form.mark), stop)
        return answer_in_hermes_form(form, text)

    def _with_mark(self, token_ids: list[int], mark: str) -> str:
        """The decoded text with ``mark``, which decoding leaves out as a special token."""
        mark_id = self.tools.mark_id
        if mark_id is None or mark_id not in token_ids:
            return self._decoded(token_ids)
        at = token_ids.index(mark_id)
        before, after = self._decoded(token_ids[:at]), self._decoded(token_ids[at + 1 :])
        return f"{before}{mark}{after}"

    def _decoded(self, token_ids: Sequence[int]) -> str:
        if self._bytes is not None:
            return self._bytes.decode(token_ids)
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def _rendered(
        self, chat: TemplateMessages, tools: Sequence[dict[str, Any]] | None, asks: bool
    ) -> str:
        more = {"tools": tools} if tools else {}
        return self._tokenizer.apply_chat_template(
            chat, add_generation_prompt=asks, tokenize=False, **more, **self._variables
        )


def _encoded(tokenizer: Any, text: str) -> list[int]:
    """The ids of a rendered chat, which brings its own special tokens.

    A fast tokenizer's own encoding is asked for: what transformers puts around it costs as much
    again, and its batches wake a pool of threads for one text. Batches alone release the GIL, which
    a text of megabytes would hold for seconds. Where tokenizer.json brings a length to cut or to
    pad to, that encoding would apply it; transformers' own does neither unasked.
    """
    backend = tokenizer.backend_tokenizer if getattr(tokenizer, "is_fast", False) else None
    if backend is not None and backend.truncation is None and backend.padding is None:
        if len(text) > LONG_CHARS:
            return backend.encode_batch([text], add_special_tokens=False)[0].ids
        return backend.encode(text, add_special_tokens=False).ids
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def refuse_images(images: Sequence[ImagePart], model: str) -> None:
    """Raises InvalidArgumentError for images in a prompt of a model that reads text alone."""
    if images:
        raise InvalidArgumentError(
            f"'{model}' is served as a text model, and a prompt has {len(images)} images. Give the "
            "policy a Qwen2.5-VL or Qwen3-VL model, or let the task observe text."
        )


def prompt_images(
    images: Sequence[ImagePart], vision: VisionModel | None
) -> tuple[PromptImage, ...]:
    """The images of a prompt as the model saw them."""
    if vision is None:
        return ()
    return tuple(
        PromptImage(i.digest, i.width, i.height, *grid_of(i.width, i.height, vision))
        for i in images
    )


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
    """Whether the newest tokens contain a stop string; None when there are no stop strings.

    As in SGLang a special token counts with its text, though an answer's text leaves it out.
    """
    strings = [text for text in stop if text]
    if not strings:
        return None
    tail = 4 * max(len(text) for text in strings) + 4

    def hits(token_ids: Sequence[int]) -> bool:
        text = tokenizer.decode(list(token_ids[-tail:]))
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


def check_context(num_tokens: int, *, context_length: int, model: str) -> None:
    """Raises InvalidArgumentError for more tokens to score than the model can read at once."""
    if num_tokens > context_length:
        raise InvalidArgumentError(
            f"{num_tokens} token ids exceed the {context_length} of the context of '{model}'. "
            "Score fewer."
        )
