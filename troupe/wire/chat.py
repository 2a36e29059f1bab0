"""OpenAI chat completions: ``POST /v1/chat/completions``."""

import json
from collections.abc import Mapping
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Message, Role
from troupe.tasks.tool_calls import Tool
from troupe.wire.body import (
    CREATED,
    call_of,
    list_of,
    max_tokens_of,
    model_of,
    num_tokens,
    overridden,
    refuse_vendors,
    stops_of,
    tool_of,
)
from troupe.wire.dialect import ModelAnswer, form_of, request_of, text_of
from troupe.wire.request import CallKey, ModelRequest

ROLES: Mapping[str, Role] = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}


def read(body: Mapping[str, Any]) -> ModelRequest:
    """The request in ``body``; raises InvalidArgumentError that says what does not fit."""
    if (body.get("n") or 1) != 1:
        raise InvalidArgumentError("n must be 1: Troupe draws the candidates")
    refuse_vendors(body)
    refuse_old_functions(body)
    options = body.get("stream_options") or {}
    return request_of(
        model_of(body),
        read_messages(body),
        _tools(body),
        form=read_form(body),
        tool_choice=body.get("tool_choice"),
        stop=stops_of(body.get("stop")),
        is_stream=bool(body.get("stream")),
        wants_usage=bool(options.get("include_usage")),
        max_tokens=max_tokens_of(body),
        overridden=overridden(body),
    )


def read_messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of ``body`` with their tool calls."""
    return tuple(_message(message, i) for i, message in enumerate(list_of(body, "messages")))


def read_form(body: Mapping[str, Any]) -> str:
    """What a policy is told of ``response_format``; nothing where the answer is any text."""
    return form_of(body.get("response_format"), "response_format", nested="json_schema")


def refuse_old_functions(body: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError for what tools were before: its clients read no tool calls."""
    for name in ("functions", "function_call"):
        if body.get(name):
            raise _old(f"'{name}'", pointer=name)


def document(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> dict[str, Any]:
    """The whole answer as one JSON object."""
    asked = num_tokens([text for _, text in request.turns])
    return {
        "id": f"chatcmpl-{key}",
        "object": "chat.completion",
        "created": CREATED,
        "model": request.model,
        "choices": [choice_of(answer, str(key))],
        "usage": usage_of(asked, num_tokens([answer.text])),
    }


def choice_of(answer: ModelAnswer, key: str, *, index: int = 0) -> dict[str, Any]:
    """One choice."""
    finish = "length" if answer.is_cut else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if not answer.tool_calls:
        message["content"] = answer.text
    else:
        finish = "tool_calls"
        message["tool_calls"] = [
            {
                "id": f"call_{key}_{i}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for i, call in enumerate(answer.tool_calls)
        ]
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def usage_of(prompt: int, completion: int) -> dict[str, int]:
    """Tokens of a request and of its answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def chunks_of(document: Mapping[str, Any], *, wants_usage: bool) -> list[dict[str, Any]]:
    """A whole answer as chunks: each choice in one, then why it ended, then usage if asked for."""
    head = {
        "id": document["id"],
        "object": "chat.completion.chunk",
        "created": document["created"],
        "model": document["model"],
    }
    chunks: list[dict[str, Any]] = []
    for choice in document["choices"]:
        delta = dict(choice["message"])
        if "tool_calls" in delta:
            calls = enumerate(delta["tool_calls"])
            delta["tool_calls"] = [{**call, "index": i} for i, call in calls]
        index, finish = choice["index"], choice["finish_reason"]
        begun = {"index": index, "delta": delta, "finish_reason": None}
        ended = {"index": index, "delta": {}, "finish_reason": finish}
        chunks += [{**head, "choices": [begun]}, {**head, "choices": [ended]}]
    if wants_usage:
        chunks.append({**head, "choices": [], "usage": document["usage"]})
    return chunks


def event_of(document: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(document).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The last event of a stream."""


def stream(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> list[bytes]:
    """The answer as server-sent events: all of it in one chunk, then why it ended, then usage."""
    chunks = chunks_of(document(request, key, answer), wants_usage=request.wants_usage)
    return [*map(event_of, chunks), DONE]


def _message(message: Mapping[str, Any], number: int) -> Message:
    role = message.get("role")
    text = text_of(message.get("content"), f"message {number}")
    if role == "function" or message.get("function_call"):
        raise _old(f"message {number}, a call or a result of 'functions',", pointer="messages")
    if role == "tool":
        return Message("tool", text)
    known = ROLES.get(str(role))
    if known is None:
        raise InvalidArgumentError(
            f"message {number} has the unknown role {role!r}", pointer="messages"
        )
    at = f"messages/{number}/tool_calls"
    calls = [
        call_of(call.get("function"), f"{at}/{i}")
        for i, call in enumerate(list_of(message, "tool_calls"))
    ]
    return Message(known, text, tuple(calls))


def _old(what: str, pointer: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} is not served: it is the old form of tools. Use 'tools', 'tool_calls' and "
        "messages of the role tool",
        pointer=pointer,
    )


def _tools(body: Mapping[str, Any]) -> list[Tool]:
    functions = [tool.get("function") for tool in list_of(body, "tools")]
    if not all(isinstance(function, dict) for function in functions):
        raise InvalidArgumentError("a tool is not of type function; only functions are offered")
    return [tool_of(function or {}, "parameters") for function in functions]
