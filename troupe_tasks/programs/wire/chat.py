"""OpenAI chat completions: ``POST /v1/chat/completions``."""

import json
from collections.abc import Mapping
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe_tasks.programs.calls import CallKey, ModelRequest, Tool
from troupe_tasks.programs.dialect import (
    ModelAnswer,
    form_of,
    joined,
    request_of,
    text_of,
    written_call,
    written_result,
)
from troupe_tasks.programs.wire.body import (
    CREATED,
    list_of,
    model_of,
    num_tokens,
    overridden,
    stops_of,
    tool_of,
)

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}


def read(body: Mapping[str, Any]) -> ModelRequest:
    """The request in ``body``; raises InvalidArgumentError that says what does not fit."""
    if (body.get("n") or 1) != 1:
        raise InvalidArgumentError("n must be 1: Troupe draws the candidates")
    turns = [_turn(message, i) for i, message in enumerate(list_of(body, "messages"))]
    options = body.get("stream_options") or {}
    return request_of(
        model_of(body),
        turns,
        _tools(body),
        form=_form(body.get("response_format")),
        stop=stops_of(body.get("stop")),
        is_stream=bool(body.get("stream")),
        wants_usage=bool(options.get("include_usage")),
        overridden=overridden(body),
    )


def document(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> dict[str, Any]:
    """The whole answer as one JSON object."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if not answer.tool_calls:
        message["content"] = answer.text
    else:
        message["tool_calls"] = [
            {
                "id": f"call_{key}_{i}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for i, call in enumerate(answer.tool_calls)
        ]
    finish = "tool_calls" if answer.tool_calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    asked = num_tokens([text for _, text in request.turns])
    told = num_tokens([answer.text])
    return {
        "id": f"chatcmpl-{key}",
        "object": "chat.completion",
        "created": CREATED,
        "model": request.model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": told,
            "total_tokens": asked + told,
        },
    }


def stream(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> list[bytes]:
    """The answer as server-sent events: all of it in one chunk, then why it ended, then usage."""
    whole = document(request, key, answer)
    choice = whole["choices"][0]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{**call, "index": i} for i, call in enumerate(delta["tool_calls"])]
    head = {
        "id": whole["id"],
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": request.model,
    }
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {
            **head,
            "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}],
        },
    ]
    if request.wants_usage:
        chunks.append({**head, "choices": [], "usage": whole["usage"]})
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    return [*events, b"data: [DONE]\n\n"]


def _turn(message: Mapping[str, Any], number: int) -> tuple[str, str]:
    role = message.get("role")
    text = text_of(message.get("content"), f"message {number}")
    if role in ("tool", "function"):
        return "user", written_result(text)
    if role not in _ROLES:
        raise InvalidArgumentError(f"message {number} has the unknown role {role!r}")
    return _ROLES[role], joined(text, [_written(call) for call in list_of(message, "tool_calls")])


def _written(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    return written_call(str(function.get("name")), str(function.get("arguments") or "{}"))


def _tools(body: Mapping[str, Any]) -> list[Tool]:
    if body.get("tool_choice") == "none":
        return []
    functions = [tool.get("function") for tool in list_of(body, "tools")]
    functions += list_of(body, "functions")
    if not all(isinstance(function, dict) for function in functions):
        raise InvalidArgumentError("a tool is not of type function; only functions are offered")
    return [tool_of(function, "parameters") for function in functions if function]


def _form(response_format: Any) -> str:
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "json_schema":
        return form_of((response_format.get("json_schema") or {}).get("schema"))
    return form_of(None) if kind == "json_object" else ""
