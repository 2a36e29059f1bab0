"""The three request formats: what is read, what is refused, what is answered."""

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError
from troupe.tasks.actions import CutAction
from troupe.wire import chat, messages, responses
from troupe.wire.dialect import read_answer
from troupe.wire.request import CallKey
from troupe_tasks.programs.calls import ProgramRun, digest_of

KEY = CallKey("abc", 0)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ADDED = {"name": "add", "arguments": '{"a": 1}'}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
SEEN = (
    ("user", "1 + 2?"),
    ("assistant", CALL),
    ("user", "<tool_response>\n3\n</tool_response>"),
)
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c",
                    "function": {"name": "add", "arguments": '{"a": 1}'},
                    "type": "function",
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "1 + 2?"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "3"},
    ],
    "tools": [{"type": "function", **FUNCTION}],
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": "3"}],
        },
    ],
    "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
}
TITLED = {"title": "Verdict"}
FORMATS = [(chat, CHAT), (responses, RESPONSES), (messages, MESSAGES)]


@pytest.mark.parametrize(("wire", "body"), FORMATS)
def test_request_when_formats_ask_the_same_then_the_policy_sees_the_same(
    wire: ModuleType, body: dict[str, Any]
) -> None:
    request = wire.read(body)
    assert request.turns[1:] == SEEN
    assert request.turns[0][1] == chat.read(CHAT).turns[0][1]
    assert request.system == "Be brief."
    assert [tool.name for tool in request.tools] == ["add"]


@pytest.mark.parametrize(("wire", "body"), FORMATS)
def test_answer_when_it_is_repeated_then_is_the_same_to_the_byte(
    wire: ModuleType, body: dict[str, Any]
) -> None:
    request = wire.read(body)
    answer = read_answer(f"So. {CALL}", request.tools)
    for write in (wire.document, wire.stream):
        assert write(request, KEY, answer) == write(request, KEY, answer)
    assert "abc0" in json.dumps(wire.document(request, KEY, answer))


def test_stream_when_usage_is_asked_then_the_last_chunk_tells_it() -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    request = chat.read(body)
    events = chat.stream(request, KEY, read_answer(CALL, request.tools))
    assert events[-1] == b"data: [DONE]\n\n"
    documents = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    assert documents[0]["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    assert documents[1]["choices"][0]["finish_reason"] == "tool_calls"
    assert documents[2]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    ("wire", "body", "told", "streamed"),
    [
        (chat, CHAT, {"finish_reason": "length"}, '"finish_reason": "length"'),
        (
            responses,
            RESPONSES,
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "event: response.incomplete",
        ),
        (messages, MESSAGES, {"stop_reason": "max_tokens"}, '"stop_reason": "max_tokens"'),
    ],
)
def test_answer_when_a_bound_cut_it_then_it_is_told_whole_and_streamed(
    wire: ModuleType, body: dict[str, Any], told: dict[str, Any], streamed: str
) -> None:
    request = wire.read(body)
    cut = read_answer(CutAction("So the sum"), request.tools)
    document = wire.document(request, KEY, cut)
    assert told.items() <= {**document, **document.get("choices", [{}])[0]}.items()
    assert streamed in b"".join(wire.stream(request, KEY, cut)).decode()
    whole = read_answer("So the sum", request.tools)
    assert streamed not in b"".join(wire.stream(request, KEY, whole)).decode()


@pytest.mark.parametrize(("wire", "body"), FORMATS)
def test_answer_when_it_calls_a_tool_and_is_cut_then_the_call_is_what_is_told(
    wire: ModuleType, body: dict[str, Any]
) -> None:
    request = wire.read(body)
    cut = read_answer(CutAction(f"{CALL} and"), request.tools)
    whole = read_answer(f"{CALL} and", request.tools)
    assert wire.stream(request, KEY, cut) == wire.stream(request, KEY, whole)


@pytest.mark.parametrize(
    ("wire", "change", "why"),
    [
        (chat, {"n": 2}, "n must be 1"),
        (chat, {"model": None}, "'model' is missing"),
        (chat, {"messages": "hi"}, "not a list"),
        (chat, {"messages": [{"role": "alien", "content": ""}]}, "unknown role 'alien'"),
        (chat, {"tools": [{"type": "custom"}]}, "only functions"),
        (chat, {"stop": 3}, "'stop'"),
        (chat, {"max_tokens": 0}, "max_tokens"),
        (chat, {"max_tokens": True}, "max_tokens"),
        (chat, {"tools": None, "functions": [FUNCTION]}, "'functions' is not served.*Use 'tools'"),
        (chat, {"function_call": "auto"}, "'function_call' is not served"),
        (chat, {"messages": [{"role": "assistant", "function_call": ADDED}]}, "Use 'tools'"),
        (chat, {"messages": [{"role": "function", "name": "add", "content": "3"}]}, "Use 'tools'"),
        (chat, {"messages": [{"role": ["user"], "content": ""}]}, "unknown role"),
        (chat, {"response_format": "json_object"}, "response_format must be an object"),
        (chat, {"response_format": {"type": "grammar"}}, "text, json_object or json_schema"),
        (
            chat,
            {"response_format": {"type": "json_schema", "json_schema": "x"}},
            "response_format/json_schema must be an object",
        ),
        (
            chat,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "a JSON schema, an object",
        ),
        (
            chat,
            {"messages": [{"role": "assistant", "tool_calls": [{"function": "add"}]}]},
            "messages/0/tool_calls/0: a tool call has no function with a name",
        ),
        (
            chat,
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
                    }
                ]
            },
            "arguments of 'add' must be JSON written as a text",
        ),
        (chat, {"tool_choice": "add"}, "tool_choice may be auto, none, required, or"),
        (
            chat,
            {"tool_choice": {"type": "function", "function": {"name": "divide"}}},
            "tool_choice names 'divide', and 'tools' has add",
        ),
        (responses, {"tool_choice": {"type": "file_search"}}, "tool_choice may be"),
        (messages, {"tool_choice": {"type": "tool"}}, "tool_choice names None"),
        (responses, {"text": {"format": {"type": "grammar"}}}, "text/format must be an object"),
        (responses, {"text": "json"}, "text/format must be an object"),
        (responses, {"input": [{"type": "function_call"}]}, "input/0: a tool call has no function"),
        (responses, {"max_output_tokens": "9"}, "max_output_tokens"),
        (responses, {"previous_response_id": "r"}, "whole input"),
        (responses, {"tools": [{"type": "web_search"}]}, "only functions"),
        (responses, {"input": [{"type": "item_reference"}]}, "item_reference"),
        (messages, {"messages": [{"role": "system", "content": ""}]}, "unknown role"),
        (messages, {"output_config": {"format": "json"}}, "output_config/format must be an object"),
        (messages, {"tools": [{"type": "web_search_20250305", "name": "web"}]}, "web_search_2025"),
        (chat, {"web_search_options": {}}, "'web_search_options' asks"),
        (chat, {"modalities": ["text", "audio"]}, "'modalities' asks"),
        (messages, {"mcp_servers": [{"type": "url", "name": "m"}]}, "'mcp_servers' asks"),
        (responses, {"prompt": {"id": "pmpt_1"}}, "'prompt' asks"),
    ],
)
def test_request_when_it_cannot_be_served_then_says_what_does_not_fit(
    wire: ModuleType, change: dict[str, Any], why: str
) -> None:
    body = dict(FORMATS)[wire]
    with pytest.raises(InvalidArgumentError, match=why):
        wire.read({**body, **change})


def test_sampling_when_sent_then_is_named_and_not_part_of_what_is_asked() -> None:
    request = chat.read({**CHAT, "temperature": 0.3, "seed": 1})
    assert request.overridden == ("temperature", "seed")
    assert digest_of(request) == digest_of(chat.read(CHAT))


@pytest.mark.parametrize(
    ("wire", "bounds", "lowest"),
    [
        (chat, {}, None),
        (chat, {"max_tokens": 5}, 5),
        (chat, {"max_tokens": 5, "max_completion_tokens": 3}, 3),
        (responses, {"max_output_tokens": 7}, 7),
        (messages, {"max_tokens": 9}, 9),
    ],
)
def test_bound_when_sent_then_the_lowest_is_part_of_what_is_asked(
    wire: ModuleType, bounds: dict[str, int], lowest: int | None
) -> None:
    body = dict(FORMATS)[wire]
    request = wire.read({**body, **bounds})
    assert request.max_tokens == lowest
    assert request.overridden == ()
    assert (digest_of(request) == digest_of(replace(request, max_tokens=None))) is (lowest is None)


@pytest.mark.parametrize(
    ("wire", "form"),
    [
        (chat, {"response_format": {"type": "json_schema", "json_schema": {"schema": TITLED}}}),
        (responses, {"text": {"format": {"type": "json_schema", "schema": TITLED}}}),
        (messages, {"output_config": {"format": {"type": "json_schema", "schema": TITLED}}}),
        (messages, {"output_format": {"type": "json_schema", "schema": TITLED}}),
    ],
)
def test_form_when_a_schema_is_asked_then_stands_in_the_prompt(
    wire: ModuleType, form: dict[str, Any]
) -> None:
    body = dict(FORMATS)[wire]
    assert json.dumps(TITLED) in wire.read({**body, **form}).turns[0][1]


@pytest.mark.parametrize(
    ("wire", "choice"),
    [
        (chat, {"type": "function", "function": {"name": "add"}}),
        (responses, {"type": "function", "name": "add"}),
        (messages, {"type": "tool", "name": "add"}),
    ],
)
def test_tool_choice_when_it_names_a_function_then_the_prompt_asks_for_it_and_it_is_told(
    wire: ModuleType, choice: dict[str, Any]
) -> None:
    body = dict(FORMATS)[wire]
    request = wire.read({**body, "tool_choice": choice})
    assert request.messages[0].text == "Be brief.\n\nCall the function add."
    assert (request.system, request.overridden) == ("Be brief.", ("tool_choice",))
    assert [tool.name for tool in request.tools] == ["add"]


@pytest.mark.parametrize(
    ("wire", "choice"), [(chat, "required"), (responses, "required"), (messages, {"type": "any"})]
)
def test_tool_choice_when_any_call_is_required_then_the_prompt_asks_for_one(
    wire: ModuleType, choice: object
) -> None:
    body = dict(FORMATS)[wire]
    request = wire.read({**body, "tool_choice": choice})
    assert request.messages[0].text == "Be brief.\n\nCall one of the functions."
    assert request.overridden == ("tool_choice",)


@pytest.mark.parametrize(("wire", "body"), FORMATS)
def test_tool_choice_when_it_is_auto_or_none_then_is_followed(
    wire: ModuleType, body: dict[str, Any]
) -> None:
    is_anthropic = wire is messages
    auto, none = ({"type": kind} if is_anthropic else kind for kind in ("auto", "none"))
    assert wire.read({**body, "tool_choice": auto}) == wire.read(body)
    request = wire.read({**body, "tool_choice": none})
    assert (request.tools, request.overridden) == ((), ())


@pytest.mark.parametrize(
    ("mode", "told"),
    [("auto", "Be brief."), ("required", "Be brief.\n\nCall one of the functions.")],
)
def test_tool_choice_when_it_allows_some_tools_then_those_alone_are_offered(
    mode: str, told: str
) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("add", "divide")]
    allowed = {"mode": mode, "tools": tools[:1]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    request = chat.read({**CHAT, "tools": tools, "tool_choice": choice})
    assert [tool.name for tool in request.tools] == ["add"]
    assert request.messages[0].text == told
    in_responses = {"type": "allowed_tools", "mode": mode, "tools": [{"name": "add"}]}
    asked = responses.read({**RESPONSES, "tool_choice": in_responses})
    assert asked.messages[0].text == told


@pytest.mark.parametrize(
    ("wire", "fields", "names"),
    [
        (chat, {"parallel_tool_calls": False}, ("parallel_tool_calls",)),
        (chat, {"parallel_tool_calls": True}, ()),
        (
            chat,
            {"reasoning_effort": "high", "verbosity": "low"},
            ("reasoning_effort", "verbosity"),
        ),
        (
            responses,
            {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}},
            ("reasoning.effort", "text.verbosity"),
        ),
        (
            messages,
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            ("tool_choice.disable_parallel_tool_use",),
        ),
        (
            messages,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            ("output_config.effort", "thinking"),
        ),
        (messages, {"thinking": {"type": "disabled"}}, ()),
        (
            chat,
            {"min_p": 0.1, "best_of": 2, "guided_json": {}},
            ("min_p", "best_of", "guided_json"),
        ),
        (chat, {"min_p": 0.0, "best_of": 1, "stop_token_ids": [], "modalities": ["text"]}, ()),
    ],
)
def test_fields_when_a_policy_does_not_follow_them_then_are_named(
    wire: ModuleType, fields: dict[str, Any], names: tuple[str, ...]
) -> None:
    body = dict(FORMATS)[wire]
    request = wire.read({**body, **fields})
    assert request.overridden == names
    assert request.turns == wire.read(body).turns


def test_prefill_when_a_message_begins_the_answer_then_is_named_and_a_turn_is_asked_for() -> None:
    begun = {"role": "assistant", "content": "{"}
    request = messages.read({**MESSAGES, "messages": [*MESSAGES["messages"], begun]})
    assert request.overridden == ("prefill",)
    assert request.turns[-2:] == (("assistant", "{"), ("user", "Go on."))


@pytest.mark.parametrize("form", [None, {}, {"type": "text"}])
def test_form_when_any_text_is_asked_then_nothing_is_told(form: object) -> None:
    assert chat.read({**CHAT, "response_format": form}).turns == chat.read(CHAT).turns


def test_answer_when_a_stop_sequence_ended_it_then_messages_say_which() -> None:
    request = messages.read({**MESSAGES, "stop_sequences": ["\nObservation", "END"]})
    run = ProgramRun(8, lambda asked, _: digest_of(asked))
    call = run.ask(request, b"", {}, lambda: None)
    run.answer(call, "one END two\nObservation")
    answer = replace(read_answer(call.text or "", request.tools), stopped_by=call.stopped_by)
    document = messages.document(request, KEY, answer)
    assert (document["stop_reason"], document["stop_sequence"]) == ("stop_sequence", "END")
    streamed = b"".join(messages.stream(request, KEY, answer)).decode()
    assert '{"stop_reason": "stop_sequence", "stop_sequence": "END"}' in streamed
    called = messages.document(request, KEY, read_answer(CALL, request.tools))
    assert (called["stop_reason"], called["stop_sequence"]) == ("tool_use", None)
