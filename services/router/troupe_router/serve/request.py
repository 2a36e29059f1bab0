"""Reads a chat completion's body: what is asked, how it is sampled, and what is refused.

Owns which fields an endpoint supports. A field that would change the answer and is not supported is
an error, never ignored.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from troupe.errors import InvalidArgumentError
from troupe.spec.issues import issues_of
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import ImagePart, writable
from troupe.tasks.family import Message
from troupe.wire import chat
from troupe.wire.body import list_of, stops_of
from troupe.wire.images import taken_out
from troupe.wire.request import ModelRequest

_MAX_STOPS = 4
_SEED_BITS = 63
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
}
"""Field of a request to field of ``SamplingSpec``; a later one wins."""
_READ = {
    *_SAMPLING,
    *("model", "messages", "stream", "stream_options", "n", "seed", "stop"),
    *("tools", "tool_choice", "response_format"),
}
_OF_THE_CALLER = {"user", "metadata", "safety_identifier", "prompt_cache_key", "store"}
"""What says who asks, and changes no answer."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "functions": ([],),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
}
"""Fields that are not supported, with the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class AskedChat:
    """One request. ``sampling`` holds what the client set; the rest is the team's own.

    ``request`` holds the messages as a policy reads them, a schema in the first one;
    ``messages`` are those that the client wrote. ``images`` are by the mark that stands
    for each in those texts.
    """

    model: str
    body: Mapping[str, Any]
    messages: tuple[Message, ...]
    sampling: Mapping[str, Any]
    stop: tuple[str, ...]
    num_choices: int
    seed: int
    is_stream: bool
    wants_usage: bool
    has_tools: bool
    has_form: bool
    images: Mapping[str, ImagePart]

    def request(self, instruction: str) -> ModelRequest:
        """The messages as a policy reads them, under ``instruction`` if they begin with none.

        A later system message becomes the user's (``request_of``), so it is no instruction.
        """
        if self.messages[0].role == "system" or not instruction:
            return chat.read(self.body)
        first = {"role": "system", "content": instruction}
        return chat.read({**self.body, "messages": [first, *self.body["messages"]]})

    def sampled_as(self, usual: SamplingSpec) -> SamplingSpec:
        """``usual``, changed by what the client set; raises InvalidArgumentError."""
        document = {**usual.model_dump(), **self.sampling}
        if self.stop:
            document["stop"] = list(self.stop)
        try:
            return SamplingSpec.model_validate(document, strict=True)
        except ValidationError as error:
            issue = issues_of(error, SamplingSpec)[0]
            field = issue.pointer.strip("/").partition("/")[0]
            asked = next((a for a, b in _SAMPLING.items() if b == field), field)
            raise InvalidArgumentError(f"{asked}: {issue.message}", pointer=asked) from error


def read_chat(data: bytes, max_choices: int) -> AskedChat:
    """The request in ``data``; raises InvalidArgumentError, whose pointer is the field."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise InvalidArgumentError("the body is not a JSON object")
    _refuse_half_characters(body)
    chat.refuse_old_functions(body)
    _refuse_unsupported(body)
    given = {name: value for name, value in body.items() if value is not None}
    num_choices = _integer(given, "n", 1)
    if not 1 <= num_choices <= max_choices:
        raise InvalidArgumentError(
            f"n is {num_choices}; 1 to {max_choices} are served", pointer="n"
        )
    stop = _stops(given.get("stop"))
    seed = _integer(given, "seed", secrets.randbits(_SEED_BITS))
    shown, images = taken_out({**given, "n": 1})
    shown.pop("stop", None)
    messages = chat.read_messages(shown)
    if not messages:
        raise InvalidArgumentError("there are no messages", pointer="messages")
    return AskedChat(
        model=str(given.get("model") or ""),
        body=shown,
        messages=messages,
        sampling={_SAMPLING[name]: given[name] for name in _SAMPLING if name in given},
        stop=stop,
        num_choices=num_choices,
        seed=seed & ((1 << _SEED_BITS) - 1),
        is_stream=_truth(given, "stream"),
        wants_usage=_truth(_options(given), "include_usage"),
        has_tools=bool(list_of(given, "tools")),
        has_form=bool(chat.read_form(given)),
        images=images,
    )


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if value is None or name in _READ or name in _OF_THE_CALLER:
            continue
        neutral = _NEUTRAL.get(name)
        if neutral is None or value not in neutral:
            raise InvalidArgumentError(
                f"'{name}' is not supported here; leave it out (docs/serving.md lists what is)",
                pointer=name,
            )
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise InvalidArgumentError(
            "tool_choice may be 'auto' or 'none': no engine here can be made to call a tool",
            pointer="tool_choice",
        )


def _refuse_half_characters(body: Mapping[str, Any]) -> None:
    """No tokenizer and no answer can hold one, and JSON may escape it anywhere."""
    for name, value in body.items():
        text = json.dumps([name, value], ensure_ascii=False)
        if text != writable(text):
            field = ascii(name)[1:-1]
            raise InvalidArgumentError(
                f"'{field}' holds half a character; send whole ones", pointer=field
            )


def _options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    options = given.get("stream_options") or {}
    if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
        raise InvalidArgumentError(
            "stream_options may hold include_usage alone", pointer="stream_options"
        )
    return options


def _stops(value: Any) -> tuple[str, ...]:
    stops = stops_of(value)
    if len(stops) > _MAX_STOPS or not all(stops):
        raise InvalidArgumentError(
            f"stop takes up to {_MAX_STOPS} texts that are not empty", pointer="stop"
        )
    return stops


def _integer(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(f"{name} is not a whole number", pointer=name)
    return value


def _truth(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} is neither true nor false", pointer=name)
    return value
