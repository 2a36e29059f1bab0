"""``tool_choice`` of the three formats: which tools are offered, and which call is asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.tool_calls import Tool
from troupe.wire.body import list_of


def chosen(choice: Any, tools: Sequence[Tool]) -> tuple[tuple[Tool, ...], str]:
    """The tools that ``choice`` leaves, and what a policy is told of a call that it must make.

    Nothing enforces the call.

    Raises:
        InvalidArgumentError: ``choice`` has no known form, or names no tool of the request.
    """
    details: Mapping[str, Any] = choice if isinstance(choice, dict) else {}
    kind = details.get("type") if details else choice
    if kind in (None, "auto"):
        return tuple(tools), ""
    if kind == "none":
        return (), ""
    if kind in ("required", "any"):
        return tuple(tools), "Call one of the functions." if tools else ""
    if kind in ("function", "tool"):
        return tuple(tools), f"Call the function {_offered(details, tools)}."
    allowed = details.get("allowed_tools", details)
    if kind == "allowed_tools" and isinstance(allowed, dict):
        names = [_offered(tool, tools) for tool in list_of(allowed, "tools")]
        return chosen(allowed.get("mode"), [tool for tool in tools if tool.name in names])
    raise InvalidArgumentError(
        "tool_choice may be auto, none, required, or an object that names a function of 'tools'",
        pointer="tool_choice",
    )


def _offered(choice: Mapping[str, Any], tools: Sequence[Tool]) -> str:
    """The name of the tool that ``choice`` names."""
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, dict) else None
    for tool in tools:
        if tool.name == name:
            return tool.name
    raise InvalidArgumentError(
        f"tool_choice names {name!r}, and 'tools' has {', '.join(t.name for t in tools) or 'none'}",
        pointer="tool_choice",
    )
