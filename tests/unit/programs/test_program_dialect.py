"""Messages and tools as text, and a policy's text as tool calls."""

import json
import time

import pytest

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Message
from troupe.tasks.tool_calls import Tool, written_call
from troupe.wire.dialect import read_answer, request_of, text_of

ADD = Tool("add", "Add two numbers.", {"type": "object"})


def test_turns_when_a_system_message_is_late_or_alone_then_the_user_says_it() -> None:
    late = request_of("m", [Message("user", "hi"), Message("system", "choose")], ())
    assert late.turns == (("user", "hi"), ("user", "choose"))
    assert late.system == "choose"
    alone = request_of("m", [Message("system", "You are in a role play game")], ())
    assert alone.turns == (("user", "You are in a role play game"),)


def test_turns_when_a_text_is_empty_or_the_assistant_is_last_then_templates_take_them() -> None:
    request = request_of("m", [Message("user", ""), Message("assistant", "so far")], ())
    assert request.turns == (("user", "(empty)"), ("assistant", "so far"), ("user", "Go on."))


def test_tools_when_offered_then_stand_in_the_system_message_once() -> None:
    request = request_of("m", [Message("user", "hi")], [ADD], form="As JSON.")
    [(role, text), user] = request.turns
    assert role == "system"
    assert '<tools>\n{"type": "function", "function": {"name": "add"' in text
    assert text.startswith("As JSON.\n\n# Tools")
    assert user == ("user", "hi")


def test_request_when_it_has_no_messages_then_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match="no messages"):
        request_of("m", [], ())


@pytest.mark.parametrize("content", [{"a": 1}, [{"type": "image_url"}], [3]])
def test_content_when_it_is_no_text_then_is_refused(content: object) -> None:
    with pytest.raises(InvalidArgumentError, match="message 1"):
        text_of(content, "message 1")


def test_answer_when_it_calls_tools_then_they_are_taken_out() -> None:
    calls = [written_call("add", '{"a": 1}'), written_call("other", "{}")]
    text = "\n".join(["Let me see.", *calls])
    answer = read_answer(text, [ADD])
    assert answer.text == "Let me see."
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [
        ("add", {"a": 1}),
        ("other", {}),
    ]
    assert answer.num_unread == 0


@pytest.mark.parametrize(
    "inside",
    [
        "add(1, 2)",
        "{",
        "[]",
        '{"name": 3}',
        '{"name": ""}',
        '{"arguments": {}}',
        '{"name": "add", "arguments": [1]}',
        '{"name": "add", "arguments": "{"}',
        '{"name": "add", "arguments": {"a": ' + "9" * 5000 + "}}",
        '{"name": "add", "arguments": ' + "[" * 100_000,
        '{"name": "add", "arguments": {"a": NaN}}',
        '{"name": "add", "arguments": {"a": 1e999}}',
    ],
)
def test_call_when_it_cannot_be_read_then_stays_text_and_is_counted(inside: str) -> None:
    text = f"<tool_call>{inside}</tool_call>"
    answer = read_answer(text, [ADD])
    assert (answer.text, answer.tool_calls, answer.num_unread) == (text, (), 1)


def test_call_when_it_is_never_closed_then_is_counted() -> None:
    assert read_answer('<tool_call>{"name": "add"', [ADD]).num_unread == 1


def test_call_when_begun_thousands_of_times_then_is_read_at_once() -> None:
    call = written_call("add", "{}")
    text = call + "<tool_call>" * 20_000
    begun = time.process_time()
    answer = read_answer(text, [ADD])
    assert time.process_time() - begun < 0.5
    assert (len(answer.tool_calls), answer.text) == (1, text.removeprefix(call))


def test_answer_when_no_tools_were_offered_then_is_left_as_it_is() -> None:
    text = written_call("add", "{}")
    assert read_answer(text, ()).text == text
