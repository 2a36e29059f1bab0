"""How messages and tools of a program become a prompt, and a policy's text becomes tool calls.

A policy's text has its calls in Hermes form, between ``<tool_call>`` and ``</tool_call>``: the
rollout service writes so what a model of another form calls (docs/programs.md).
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.actions import is_cut
from troupe.tasks.family import Message
from troupe.tasks.tool_calls import Tool, ToolCall, written_result
from troupe.wire.request import ModelRequest
from troupe.wire.tool_choice import chosen

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
CLOSE = "</tool_call>"
EMPTY = "(empty)"
"""What stands for a message without text, which some chat templates drop."""

GO_ON = "Go on."
"""What is asked after a last message of the assistant: the policy writes a turn of its own."""

MAX_CALLS = 64
"""Tool calls read of one answer."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A policy's text as a program reads it. ``num_unread``: tool calls that stayed text.

    ``is_cut``: a bound ended it, so where it calls no tool it is told to be incomplete.
    ``stopped_by``: the stop of the request that ended it.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    num_unread: int = 0
    is_cut: bool = False
    stopped_by: str | None = None


def text_of(content: Any, where: str) -> str:
    """The text of a message's content: a string, nothing, or parts that are all text.

    Raises:
        InvalidArgumentError: a part is an image, a file or anything else that is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise InvalidArgumentError(f"{where}: the content is neither text nor a list of parts")
    texts: list[str] = []
    for part in content:
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidArgumentError(f"{where}: a part of type {kind!r} is not text")
        texts.append(text)
    return "".join(texts)


def request_of(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    *,
    form: str = "",
    tool_choice: Any = None,
    stop: tuple[str, ...] = (),
    is_stream: bool = False,
    wants_usage: bool = False,
    max_tokens: int | None = None,
    overridden: tuple[str, ...] = (),
) -> ModelRequest:
    """A request that a chat template takes: a system message first, a user's last, no gap.

    ``form`` says what the answer must look like; it joins the system message, as does the call
    that ``tool_choice`` asks for.
    """
    if not messages:
        raise InvalidArgumentError("the request has no messages")
    firsts = [message.text for message in messages if message.role == "system"]
    shown = list(messages)
    head = shown.pop(0).text if shown[0].role == "system" else ""
    offered, asked_call = chosen(tool_choice, tools)
    has_calls = bool(offered) or any(message.tool_calls for message in messages)
    rest = [_fitting(message, has_calls=has_calls) for message in shown]
    head = "\n\n".join(filter(None, (head, form, asked_call)))
    if not rest:
        rest = [Message("user", head or EMPTY)]
    elif head:
        rest.insert(0, Message("system", head))
    if rest[-1].role == "assistant":
        rest.append(Message("user", GO_ON))
    return ModelRequest(
        model,
        tuple(rest),
        firsts[0] if firsts else messages[0].described,
        offered,
        stop,
        is_stream,
        wants_usage,
        max_tokens,
        (*overridden, "tool_choice") if asked_call else overridden,
    )


def _fitting(message: Message, *, has_calls: bool) -> Message:
    """A message after the first; a result is text where its call was left out."""
    if message.role == "tool":
        return message if has_calls else Message("user", written_result(message.text))
    text = message.text or ("" if message.tool_calls else EMPTY)
    return replace(message, role="user" if message.role == "system" else message.role, content=text)


def read_answer(text: str, tools: Sequence[Tool]) -> ModelAnswer:
    """``text`` with its tool calls taken out, if tools were offered.

    A call to a function that was not offered passes: the program says what it makes of it. What
    is no call that can be read stays text, and is counted.
    """
    answer = read_calls(text) if tools else ModelAnswer(text)
    return replace(answer, is_cut=is_cut(text))


def read_calls(text: str) -> ModelAnswer:
    """``text`` with its tool calls taken out."""
    calls: list[ToolCall] = []
    num_unread = 0

    def taken(match: re.Match[str]) -> str:
        nonlocal num_unread
        call = _read_call(match.group(1)) if len(calls) < MAX_CALLS else None
        if call is None:
            num_unread += 1
            return match.group()
        calls.append(call)
        return ""

    left = replaced_calls(taken, text)
    if "<tool_call>" in left and not num_unread:
        num_unread = 1  # begun and never ended
    return ModelAnswer(left.strip() if calls else text, tuple(calls), num_unread)


def replaced_calls(
    new: Callable[[re.Match[str]], str], text: str, calls: re.Pattern[str] = CALL
) -> str:
    """``text`` with ``new`` of each call in its place; ``calls`` may take a line end with it.

    What stands after the last end is not searched: each begin would be followed through all of it.
    """
    end = text.rfind(CLOSE) + len(CLOSE) + 1
    return calls.sub(new, text[:end]) + text[end:]


def form_of(form: Any, pointer: str, nested: str = "") -> str:
    """What a policy is told of the format at ``pointer``; nothing for text, and none is enforced.

    ``nested``: the field of the format that holds the schema's own object.

    Raises:
        InvalidArgumentError: it is neither text nor JSON, or its schema is no object.
    """
    if form is None or form == {}:
        return ""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise InvalidArgumentError(
            f"{pointer} must be an object whose type is text, json_object or json_schema",
            pointer=pointer,
        )
    if kind == "text":
        return ""
    holder = form.get(nested) if nested else form
    if kind == "json_object" or holder is None:
        return _told_schema(None)
    schema = holder.get("schema") if isinstance(holder, dict) else holder
    if schema is not None and not isinstance(schema, dict):
        at = f"{pointer}/{nested}" if nested else pointer
        raise InvalidArgumentError(
            f"{at} must be an object whose schema is a JSON schema, an object", pointer=at
        )
    return _told_schema(schema)


def _told_schema(schema: dict[str, Any] | None) -> str:
    if schema is None:
        return "Answer with a JSON object alone."
    text = json.dumps(schema, sort_keys=True, ensure_ascii=False)
    return f"Answer with a JSON object alone that fits this JSON schema:\n{text}"


def _read_call(text: str) -> ToolCall | None:
    try:
        document = json.loads(text)
        arguments = document.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        name = document["name"]
        # Python reads NaN and 1e999, which no JSON holds: a client would refuse the whole answer.
        written = json.dumps(arguments, allow_nan=False)
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return ToolCall(name, written)
