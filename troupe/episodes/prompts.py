"""The messages and tools of a prompt on the wires, whichever message carries them.

Checks what it decodes, and replaces what no wire can hold: a program or a policy may write half a
character, which ends in a prompt. For images see ``troupe.vision.wire``.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import InvalidArgumentError
from troupe.tasks.content import writable
from troupe.tasks.family import Message
from troupe.tasks.tool_calls import Tool, ToolCall
from troupe.vision.wire import parts_to_proto


def message_fields(message: Message) -> dict[str, Any]:
    """The fields of a chat message in any of the protos that have one."""
    if isinstance(message.content, str) and not message.tool_calls:  # nearly all, for less CPU
        return {"role": message.role, "content": writable(message.content)}
    calls = [
        pb.ToolCall(name=writable(c.name), arguments_json=writable(c.arguments))
        for c in message.tool_calls
    ]
    return {
        "role": message.role,
        "content": writable(message.text),
        "parts": parts_to_proto(message.content),
        "tool_calls": calls,
    }


def calls_from_proto(calls: Iterable[pb.ToolCall]) -> tuple[ToolCall, ...]:
    """An assistant's calls."""
    return tuple(ToolCall(call.name, call.arguments_json) for call in calls)


def tools_to_proto(tools: Sequence[Tool]) -> list[pb.Tool]:
    """The functions that a prompt offers."""
    return [
        pb.Tool(
            name=writable(tool.name),
            description=writable(tool.description),
            parameters_json=writable(json.dumps(tool.parameters, ensure_ascii=False)),
        )
        for tool in tools
    ]


def tools_from_proto(tools: Iterable[pb.Tool]) -> tuple[Tool, ...]:
    """The functions; raises InvalidArgumentError where the parameters are no JSON schema."""
    return tuple(Tool(tool.name, tool.description, _schema(tool)) for tool in tools)


def _schema(tool: pb.Tool) -> dict[str, Any]:
    try:
        schema: Any = json.loads(tool.parameters_json)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise InvalidArgumentError(
            f"The parameters of tool {tool.name[:80]!r} are no JSON schema; send an object."
        )
    return schema
