"""Anthropic messages: ``POST /v1/messages``."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Message
from troupe.tasks.tool_calls import Tool, ToolCall
from troupe.wire.body import (
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


def read(body: Mapping[str, Any]) -> ModelRequest:
    """The request in ``body``; raises InvalidArgumentError that says what does not fit."""
    refuse_vendors(body)
    asked: list[Message] = []
    if body.get("system"):
        asked.append(Message("system", text_of(body["system"], "system")))
    for i, message in enumerate(list_of(body, "messages")):
        if message.get("role") not in ("user", "assistant"):
            raise InvalidArgumentError(f"message {i} has the unknown role {message.get('role')!r}")
        asked += _messages(message["role"], message.get("content"), i)
    return request_of(
        model_of(body),
        asked,
        [_tool(tool) for tool in list_of(body, "tools")],
        form=_form(body),
        tool_choice=body.get("tool_choice"),
        stop=stops_of(body.get("stop_sequences")),
        is_stream=bool(body.get("stream")),
        wants_usage=True,
        max_tokens=max_tokens_of(body),
        overridden=(*overridden(body), *_prefill(asked)),
    )


def document(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> dict[str, Any]:
    """The whole answer as one JSON object."""
    content: list[dict[str, Any]] = []
    if answer.text or not answer.tool_calls:
        content.append({"type": "text", "text": answer.text})
    content += [
        {
            "type": "tool_use",
            "id": f"toolu_{key}_{i}",
            "name": call.name,
            "input": json.loads(call.arguments),
        }
        for i, call in enumerate(answer.tool_calls)
    ]
    return {
        "id": f"msg_{key}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": _stop_reason(answer),
        "stop_sequence": None if answer.tool_calls else answer.stopped_by,
        "usage": {
            "input_tokens": num_tokens([text for _, text in request.turns]),
            "output_tokens": num_tokens([answer.text]),
        },
    }


def _stop_reason(answer: ModelAnswer) -> str:
    if answer.tool_calls:
        return "tool_use"
    if answer.stopped_by is not None:
        return "stop_sequence"
    return "max_tokens" if answer.is_cut else "end_turn"


def stream(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> list[bytes]:
    """The answer as server-sent events, each block whole."""
    whole = document(request, key, answer)
    begun = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": begun})]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            ("content_block_start", {"index": index, "content_block": empty}),
            ("content_block_delta", {"index": index, "delta": delta}),
            ("content_block_stop", {"index": index}),
        ]
    ending = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    events += [("message_delta", {"delta": ending, "usage": whole["usage"]}), ("message_stop", {})]
    return [
        f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, **data}).encode() + b"\n\n"
        for kind, data in events
    ]


def _prefill(asked: Sequence[Message]) -> tuple[str, ...]:
    """``prefill`` where the last message begins the answer: the policy writes one of its own."""
    return ("prefill",) if asked and asked[-1].role == "assistant" else ()


def _tool(tool: Mapping[str, Any]) -> Tool:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        raise InvalidArgumentError(
            f"a tool is of type {kind!r}, which Anthropic defines; only functions of your own "
            "(type custom, or none, with an input_schema) are offered"
        )
    return tool_of(tool, "input_schema")


def _form(body: Mapping[str, Any]) -> str:
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    if form is None:
        return form_of(body.get("output_format"), "output_format")  # its name in the beta
    return form_of(form, "output_config/format")


def _messages(role: Literal["user", "assistant"], content: Any, number: int) -> list[Message]:
    """A message's blocks: results are messages of their own, earlier thinking is left out."""
    if not isinstance(content, list):
        return [Message(role, text_of(content, f"message {number}"))]
    results: list[Message] = []
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            calls.append(ToolCall(str(block.get("name")), json.dumps(block.get("input") or {})))
        elif kind == "tool_result":
            result = text_of(block.get("content"), f"message {number}")
            results.append(Message("tool", result))
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(text_of([block], f"message {number}"))
    text = "\n".join(filter(None, texts))
    said = [Message(role, text, tuple(calls))] if text or calls or not results else []
    return [*results, *said]
