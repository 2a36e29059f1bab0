"""Fields that the three formats share, read with one kind of error."""

from collections.abc import Mapping, Sequence
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.tool_calls import Tool, ToolCall

_OVERRIDDEN: Mapping[str, tuple[Any, ...]] = {
    "temperature": (),
    "top_p": (),
    "top_k": (),
    "min_p": (0,),
    "seed": (),
    "frequency_penalty": (),
    "presence_penalty": (),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": (),
    "bad_words": ([],),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "best_of": (1,),
    "use_beam_search": (False,),
    "logprobs": (),
    "top_logprobs": (),
    "parallel_tool_calls": (True,),
    "tool_choice.disable_parallel_tool_use": (False,),
    "reasoning_effort": (),
    "reasoning.effort": (),
    "output_config.effort": (),
    "thinking": ({"type": "disabled"},),
    "verbosity": (),
    "text.verbosity": (),
    "chat_template_kwargs": ({},),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
    **dict.fromkeys(("structured_outputs", "regex", "ebnf"), ()),
}
"""Fields that a policy does not follow, with the values that ask for nothing beside null.
The job's spec decides sampling, and no engine here is told the others."""

_OF_A_VENDOR: Mapping[str, tuple[Any, ...]] = {
    "web_search_options": (),
    "modalities": ([], ["text"]),
    "mcp_servers": ([],),
    "prompt": (),
}
"""Fields by which a vendor's server searches, speaks, calls servers of tools or looks up a prompt
that it keeps, with the values that ask for nothing beside null."""

BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The most tokens of an answer; the spec's own bound holds where it is lower."""

CREATED = 1_700_000_000
"""The time in every answer: a replay must repeat it."""


def overridden(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields of ``body`` that ask for what the policy does not follow."""
    asked = ((name, _at(body, name), neutral) for name, neutral in _OVERRIDDEN.items())
    return tuple(name for name, value, neutral in asked if value not in (None, *neutral))


def refuse_vendors(body: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError for a field that asks for what only a vendor's server does."""
    for name, neutral in _OF_A_VENDOR.items():
        if body.get(name) not in (None, *neutral):
            raise InvalidArgumentError(
                f"'{name}' asks for what a vendor's server does, and no policy here; leave it out",
                pointer=name,
            )


def _at(body: Mapping[str, Any], name: str) -> Any:
    holder, _, inner = name.partition(".")
    value = body.get(holder)
    if not inner:
        return value
    return value.get(inner) if isinstance(value, dict) else None


def list_of(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The list of objects under ``name``; nothing is an empty list.

    Raises:
        InvalidArgumentError: it is something else.
    """
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidArgumentError(f"'{name}' is not a list of objects")
    return value


def model_of(body: Mapping[str, Any]) -> str:
    """The name of the model, which may decide whose call it is."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidArgumentError("'model' is missing; it may be any text")
    return model


def tool_of(function: Mapping[str, Any], schema: str) -> Tool:
    """The tool that ``function`` describes, with its parameters under ``schema``."""
    name, parameters = function.get("name"), function.get(schema) or {}
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise InvalidArgumentError("a tool has no name, or its parameters are no JSON schema")
    return Tool(name, str(function.get("description") or ""), parameters)


def call_of(function: Any, pointer: str) -> ToolCall:
    """The call of a tool that ``function`` describes, which stands at ``pointer``."""
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            f"{pointer}: a tool call has no function with a name; send it as it was answered",
            pointer=pointer,
        )
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):
        raise InvalidArgumentError(
            f"{pointer}: the arguments of '{name}' must be JSON written as a text",
            pointer=pointer,
        )
    return ToolCall(name, arguments)


def stops_of(value: Any) -> tuple[str, ...]:
    """Texts that end the answer: one, several or none."""
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise InvalidArgumentError("'stop' is neither a text nor a list of texts")
    return tuple(stops)


def max_tokens_of(body: Mapping[str, Any]) -> int | None:
    """The lowest bound on the answer that ``body`` names, in tokens."""
    bounds = [body[name] for name in BOUNDS if body.get(name) is not None]
    if not all(type(bound) is int and 0 < bound < 2**31 for bound in bounds):
        raise InvalidArgumentError(f"{' or '.join(BOUNDS)} is not a whole number above 0")
    return min(bounds, default=None)


def num_tokens(texts: Sequence[str]) -> int:
    """About how many tokens ``texts`` are: a program may bound its history by it."""
    return sum(len(text) for text in texts) // 4 + 1
