"""What a served team reads of a request, and how many it takes."""

import asyncio
import json
from typing import Any

import pytest

from troupe.errors import InvalidArgumentError, OverloadedError, UnavailableError
from troupe.spec.job import SamplingSpec
from troupe_router.serve.models import team_text
from troupe_router.serve.queue import RequestQueue
from troupe_router.serve.request import AskedChat, read_chat

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def read(**more: Any) -> AskedChat:
    body = {"model": "a", "messages": [USER], **more}
    return read_chat(json.dumps(body).encode(), max_choices=4)


def test_request_when_it_says_nothing_then_sampling_is_the_teams() -> None:
    usual = SamplingSpec(temperature=0.3, max_new_tokens=7, stop=["x"])
    assert read().sampled_as(usual) == usual


def test_request_when_it_sets_sampling_then_that_is_used() -> None:
    asked = read(temperature=0, top_p=0.5, max_tokens=3, max_completion_tokens=5, stop=["a", "b"])
    assert asked.sampled_as(SamplingSpec()) == SamplingSpec(
        temperature=0, top_p=0.5, max_new_tokens=5, stop=["a", "b"]
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1e-40),
        ("top_k", 10**30),
        ("temperature", "0.5"),
        ("temperature", True),
        ("max_tokens", "8"),
    ],
)
def test_request_when_no_engine_can_sample_so_then_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        read(**{field: value}).sampled_as(SamplingSpec())
    assert refused.value.pointer == field


def test_request_when_fields_ask_for_nothing_then_they_pass() -> None:
    more = {"frequency_penalty": 0, "logprobs": False, "logit_bias": {}, "user": "me", "n": None}
    assert read(**more).num_choices == 1


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"n": 5}, "n"),
        ({"n": True}, "n"),
        ({"seed": "x"}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"other": 1}}, "stream_options"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"stop": [""]}, "stop"),
        ({"messages": None}, "messages"),
        ({"audio": {}}, "audio"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": "x"}},
            "response_format/json_schema",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": "x"}]}]},
            "messages/0/tool_calls/0",
        ),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages"),
    ],
)
def test_request_when_a_field_is_not_served_then_it_is_named(
    more: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        read(**more)
    assert error.value.pointer == pointer


@pytest.mark.parametrize("name", ["functions", "function_call"])
def test_request_when_it_has_the_old_form_of_tools_then_it_is_told_the_new(name: str) -> None:
    document = {"model": "m", "messages": [{"role": "user", "content": "?"}], name: [TOOL]}
    with pytest.raises(InvalidArgumentError, match="Use 'tools'") as refused:
        read_chat(json.dumps(document).encode(), max_choices=1)
    assert refused.value.pointer == name


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"1" * 5000 + b"x", b'"a"'])
def test_request_when_it_is_no_json_object_then_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="JSON"):
        read_chat(data, max_choices=1)


def test_instruction_when_the_client_has_no_system_message_then_comes_first() -> None:
    assert read().request("Be brief.").turns == (("system", "Be brief."), ("user", "hello"))
    own = [{"role": "developer", "content": "Be long."}, USER]
    assert read(messages=own).request("Be brief.").turns[0] == ("system", "Be long.")


def test_instruction_when_a_system_message_comes_late_then_comes_first() -> None:
    late = [USER, {"role": "system", "content": "Be long."}]
    assert read(messages=late).request("Be brief.").turns == (
        ("system", "Be brief."),
        ("user", "hello"),
        ("user", "Be long."),
    )


def test_tools_when_offered_then_stand_in_the_system_message_as_in_training() -> None:
    [(role, text), _] = read(tools=[TOOL]).request("Be brief.").turns
    assert role == "system"
    assert text.startswith("Be brief.") and '"look"' in text


def test_tools_when_one_has_no_name_then_is_refused() -> None:
    nameless = read(tools=[TOOL, {"type": "function", "function": {}}])
    with pytest.raises(InvalidArgumentError, match="no name"):
        nameless.request("")


def test_team_text_when_one_message_then_is_its_text_else_the_conversation() -> None:
    assert team_text(read()) == "hello"
    messages = [USER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "bye"}]
    assert team_text(read(messages=messages)) == "user: hello\n\nassistant: hi\n\nuser: bye"


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [TOOL]},
        {"response_format": {"type": "json_object"}},
        {"n": 2},
        {"stop": "x"},
        {"messages": [{"role": "system", "content": "x"}, USER]},
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user", "content": " "}]},
    ],
)
def test_team_when_asked_for_what_only_an_agent_can_then_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        team_text(read(**more))


async def test_queue_when_full_then_refuses_and_takes_the_next_in_order() -> None:
    queue = RequestQueue(max_running=1, max_waiting=1)
    order: list[str] = []
    gate = asyncio.Event()

    async def hold(name: str) -> None:
        async with queue.turn():
            order.append(name)
            await gate.wait()

    first = asyncio.create_task(hold("first"))
    second = asyncio.create_task(hold("second"))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="MAX_WAITING"):
        await hold("third")
    assert order == ["first"]
    gate.set()
    await asyncio.gather(first, second)
    assert order == ["first", "second"]


async def test_queue_when_a_waiting_request_is_cancelled_then_its_place_is_free() -> None:
    queue = RequestQueue(max_running=1, max_waiting=1)
    async with queue.turn():
        waiting = asyncio.create_task(queue.turn().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        following = queue.turn()
        next_one = asyncio.create_task(following.__aenter__())
        await asyncio.sleep(0)
        assert not next_one.done(), "it waits, where a full queue would have refused it"
    async with asyncio.timeout(1):
        await next_one
    await following.__aexit__(None, None, None)


async def test_queue_when_drained_then_ends_with_the_last_request_and_refuses_new_ones() -> None:
    queue = RequestQueue(max_running=2, max_waiting=0)
    async with queue.turn():
        draining = asyncio.create_task(queue.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        with pytest.raises(UnavailableError):
            async with queue.turn():
                pass
    await draining
