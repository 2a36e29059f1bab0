"""OpenAI responses: ``POST /v1/responses``, the default of the OpenAI Agents SDK."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Message
from troupe.wire.body import (
    CREATED,
    call_of,
    list_of,
    max_tokens_of,
    model_of,
    num_tokens,
    overridden,
    refuse_vendors,
    tool_of,
)
from troupe.wire.chat import ROLES
from troupe.wire.dialect import ModelAnswer, form_of, request_of, text_of
from troupe.wire.request import CallKey, ModelRequest


def read(body: Mapping[str, Any]) -> ModelRequest:
    """The request in ``body``; raises InvalidArgumentError that says what does not fit."""
    if body.get("previous_response_id") or body.get("conversation"):
        raise InvalidArgumentError(
            "previous_response_id and conversation need a server that keeps answers; send the "
            "whole input"
        )
    refuse_vendors(body)
    messages: list[Message] = []
    if isinstance(body.get("instructions"), str) and body["instructions"]:
        messages.append(Message("system", body["instructions"]))
    if isinstance(body.get("input"), str):
        messages.append(Message("user", body["input"]))
    else:
        for i, item in enumerate(list_of(body, "input")):
            messages = _with_item(messages, item, i)
    tools = [tool for tool in list_of(body, "tools") if tool.get("type") == "function"]
    if len(tools) < len(body.get("tools") or []):
        raise InvalidArgumentError("a tool is not of type function; only functions are offered")
    text = body.get("text")
    return request_of(
        model_of(body),
        messages,
        [tool_of(tool, "parameters") for tool in tools],
        form=form_of(text.get("format") if isinstance(text, dict) else text, "text/format"),
        tool_choice=body.get("tool_choice"),
        is_stream=bool(body.get("stream")),
        wants_usage=True,
        max_tokens=max_tokens_of(body),
        overridden=overridden(body),
    )


def document(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> dict[str, Any]:
    """The whole answer as one JSON object."""
    is_incomplete = answer.is_cut and not answer.tool_calls
    status = "incomplete" if is_incomplete else "completed"
    output: list[dict[str, Any]] = []
    if answer.text or not answer.tool_calls:
        content = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        output.append(
            {
                "id": f"msg_{key}",
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [content],
            }
        )
    output += [
        {
            "id": f"fc_{key}_{i}",
            "call_id": f"call_{key}_{i}",
            "type": "function_call",
            "status": "completed",
            "name": call.name,
            "arguments": call.arguments,
        }
        for i, call in enumerate(answer.tool_calls)
    ]
    asked = num_tokens([text for _, text in request.turns])
    told = num_tokens([answer.text])
    return {
        "id": f"resp_{key}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "model": request.model,
        "output": output,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "top_p": None,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": told,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": asked + told,
        },
    }


def stream(request: ModelRequest, key: CallKey, answer: ModelAnswer) -> list[bytes]:
    """The answer as server-sent events, each item whole."""
    whole = document(request, key, answer)
    begun = {"status": "in_progress", "output": [], "incomplete_details": None, "usage": None}
    empty = {**whole, **begun}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": empty}),
        ("response.in_progress", {"response": empty}),
    ]
    for index, item in enumerate(whole["output"]):
        events += _item_events(index, item)
    events.append((f"response.{whole['status']}", {"response": whole}))
    return [
        f"event: {kind}\ndata: ".encode()
        + json.dumps({"type": kind, "sequence_number": number, **data}).encode()
        + b"\n\n"
        for number, (kind, data) in enumerate(events)
    ]


def _item_events(index: int, item: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    where = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        arguments = item["arguments"]
        middle: list[tuple[str, dict[str, Any]]] = [
            ("response.function_call_arguments.delta", {**where, "delta": arguments}),
            (
                "response.function_call_arguments.done",
                {**where, "name": item["name"], "arguments": arguments},
            ),
        ]
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        part = item["content"][0]
        at = {**where, "content_index": 0}
        middle = [
            ("response.content_part.added", {**at, "part": {**part, "text": ""}}),
            ("response.output_text.delta", {**at, "delta": part["text"], "logprobs": []}),
            ("response.output_text.done", {**at, "text": part["text"], "logprobs": []}),
            ("response.content_part.done", {**at, "part": part}),
        ]
    return [
        ("response.output_item.added", {"output_index": index, "item": begun}),
        *middle,
        ("response.output_item.done", {"output_index": index, "item": item}),
    ]


def _with_item(messages: list[Message], item: Mapping[str, Any], number: int) -> list[Message]:
    """``messages`` and one more item of the input; a call joins the assistant's message before."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return messages
    if kind == "function_call":
        call = call_of(item, f"input/{number}")
        if messages and messages[-1].role == "assistant":
            last = messages[-1]
            return [*messages[:-1], replace(last, tool_calls=(*last.tool_calls, call))]
        return [*messages, Message("assistant", "", (call,))]
    if kind == "function_call_output":
        return [*messages, Message("tool", text_of(item.get("output"), f"item {number}"))]
    role = ROLES.get(str(item.get("role")))
    if kind != "message" or role is None:
        raise InvalidArgumentError(f"item {number} of the input, of type {kind!r}, is not known")
    return [*messages, Message(role, text_of(item.get("content"), f"item {number}"))]
