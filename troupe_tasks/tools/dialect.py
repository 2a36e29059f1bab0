"""The Hermes dialect of tool calls: how tools are listed, called and answered in plain text.

The only module that knows the marks. A call is ``<tool_call>{"name": ..., "arguments": {...}}
</tool_call>``, a result ``<tool_response>...</tool_response>``, as in
https://github.com/NousResearch/Hermes-Function-Calling. Never runs a tool.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from troupe.tasks.actions import is_shallow

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALL_CHARS = 2_000
MAX_STRING_CHARS = 500
MAX_ITEMS = 20

Type = Literal["string", "integer", "object", "list", "records"]
"""``list``: of strings; ``records``: of objects."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as a model reads it. ``parameters`` are all required; ``choices`` lists values.

    Example: ``Tool("get_order", "Show one order.", {"order": "string"})``.
    """

    name: str
    description: str
    parameters: Mapping[str, Type] = field(default_factory=dict[str, Type])
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the tool's name and its arguments, checked by ``problem_of`` alone."""

    name: str
    arguments: Mapping[str, Any]

    def key(self) -> str:
        """Equal for equal calls, whatever the order of arguments."""
        return json.dumps([self.name, self.arguments], sort_keys=True, separators=(",", ":"))


def listed(tools: Sequence[Tool]) -> str:
    """The part of a system prompt that says which tools there are and how to call one."""
    lines = [json.dumps({"type": "function", "function": _schema(tool)}) for tool in tools]
    return "\n".join(
        (
            "You have these tools:",
            "<tools>",
            *lines,
            "</tools>",
            "Call a tool by writing a JSON object with its name and arguments between the marks:",
            f'{OPEN}{{"name": "...", "arguments": {{...}}}}{CLOSE}',
        )
    )


def written(*calls: Call) -> str:
    """The text that ``read_calls`` reads as ``calls``."""
    texts = [json.dumps({"name": c.name, "arguments": dict(c.arguments)}) for c in calls]
    return "\n".join(f"{OPEN}{text}{CLOSE}" for text in texts)


def answered(text: str) -> str:
    """One result of a tool as a model reads it."""
    return f"<tool_response>{text}</tool_response>"


def read_calls(text: str, max_calls: int) -> tuple[tuple[Call, ...], bool]:
    """The first ``max_calls`` calls of ``text``, and whether its form is right.

    The form is right when there is a call, every block is one, none is left open and none is too
    many. Prose around calls is allowed. Never fails.
    """
    calls: list[Call] = []
    is_well_formed = True
    for body in _blocks(text):
        call = None if body is None else _call(body)
        if call is None or len(calls) == max_calls:
            is_well_formed = False
            break
        calls.append(call)
    return tuple(calls), is_well_formed and bool(calls)


def problem_of(tool: Tool | None, call: Call) -> str:
    """What is wrong with the arguments of ``call``, in words for a model; empty when nothing."""
    if tool is None:
        return "there is no such tool"
    wanted = ", ".join(tool.parameters) or "none"
    if set(call.arguments) != set(tool.parameters):
        return f"the arguments of {tool.name} are: {wanted}"
    for name, kind in tool.parameters.items():
        value = call.arguments[name]
        if not _has_type(value, kind):
            return f"{name} must be of type {kind}"
        if name in tool.choices and value not in tool.choices[name]:
            return f"{name} must be one of: {', '.join(tool.choices[name])}"
    return ""


def _blocks(text: str) -> Iterator[str | None]:
    """What stands between each pair of marks; None for one that never closes or is too long."""
    at = text.find(OPEN)
    while at >= 0:
        end = text.find(CLOSE, at, at + MAX_CALL_CHARS)
        if end < 0:
            yield None
            return
        yield text[at + len(OPEN) : end]
        at = text.find(OPEN, end)


def _call(body: str) -> Call | None:
    try:
        raw: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not is_shallow(raw):
        return None
    fields = cast("dict[str, Any]", raw)
    name, arguments = fields.get("name"), fields.get("arguments", {})
    if set(fields) - {"name", "arguments"} or not isinstance(name, str):
        return None
    if not isinstance(arguments, dict):
        return None
    return Call(name, cast("dict[str, Any]", arguments))


def _has_type(value: Any, kind: Type) -> bool:
    if kind == "string":
        return isinstance(value, str) and len(value) <= MAX_STRING_CHARS
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9
    if kind == "list":
        items = cast("list[Any]", value) if isinstance(value, list) else [None]
        return len(items) <= MAX_ITEMS and all(_has_type(item, "string") for item in items)
    if kind == "records":
        items = cast("list[Any]", value) if isinstance(value, list) else [None]
        return len(items) <= MAX_ITEMS and all(isinstance(item, dict) for item in items)
    return isinstance(value, dict)


def _schema(tool: Tool) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, kind in tool.parameters.items():
        properties[name] = {"type": kind}
        if kind == "list":
            properties[name] = {"type": "array", "items": {"type": "string"}}
        elif kind == "records":
            properties[name] = {"type": "array", "items": {"type": "object"}}
        if name in tool.choices:
            properties[name]["enum"] = list(tool.choices[name])
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(tool.parameters),
        },
    }
