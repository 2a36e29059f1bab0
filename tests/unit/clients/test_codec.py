"""Domain values survive the wire, and what is impossible is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.clients import codec
from troupe.episodes.ports import Outcome
from troupe.errors import InvalidArgumentError
from troupe.runtime.engines.engine import PolicyState
from troupe.spec.job import SamplingSpec
from troupe.tasks.content import TextPart
from troupe.tasks.family import BoundedObservation, Message, bound_of, tools_of
from troupe.tasks.tool_calls import Tool, ToolCall

messages = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.text())
).map(tuple)


@given(messages)
def test_observation_when_sent_then_comes_back_equal(observation):
    assert codec.observation_from_proto(codec.observation_to_proto(observation)) == observation
    assert codec.chat_from_proto(codec.chat_to_proto(observation)) == observation


def test_observation_when_it_holds_half_a_character_then_is_sent_with_a_question_mark() -> None:
    half = "a\ud800b"
    tool = Tool(half, half, {half: half})
    texts = (Message("user", half), Message("user", (TextPart(half),)))
    calls = (Message("assistant", half, (ToolCall(half, f'{{"x": "{half}"}}'),)),)
    seen = BoundedObservation((*texts, *calls), 7, (tool,))
    whole = Message("assistant", "a?b", (ToolCall("a?b", '{"x": "a?b"}'),))
    expected = (Message("user", "a?b"), Message("user", (TextPart("a?b"),)), whole)
    for back in (
        codec.observation_from_proto(codec.observation_to_proto(seen)),
        codec.chat_from_proto(codec.chat_to_proto(seen)),
    ):
        assert tuple(back) == expected
        assert tools_of(back) == (Tool("a?b", "a?b", {"a?b": "a?b"}),)


def test_bound_when_sent_then_comes_back_with_the_observation() -> None:
    seen = BoundedObservation((Message("user", "Your move?"),), 7)
    back = codec.observation_from_proto(codec.observation_to_proto(seen))
    assert (back, bound_of(back)) == (seen, 7)
    plain = codec.observation_from_proto(codec.observation_to_proto(tuple(seen)))
    assert bound_of(plain) is None


@pytest.mark.parametrize("bound", [0, -1])
def test_bound_when_it_allows_no_token_then_is_refused(bound: int) -> None:
    with pytest.raises(InvalidArgumentError, match="1 or more"):
        BoundedObservation((Message("user", "Your move?"),), bound)


@given(
    st.builds(
        SamplingSpec,
        temperature=st.just(0.0) | st.floats(1e-6, 10),
        top_p=st.floats(0.01, 1),
        top_k=st.integers(0, 2**31 - 1),
        max_new_tokens=st.integers(1, 131072),
        stop=st.lists(st.text()),
    ),
    st.integers(0, 2**63 - 1),
)
def test_sampling_when_sent_then_comes_back_equal(sampling, seed):
    assert codec.sampling_from_proto(codec.sampling_to_proto(sampling, seed)) == (sampling, seed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": 1e-40},
        {"top_k": 2**31},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"max_new_tokens": 0},
    ],
)
def test_sampling_when_out_of_range_then_invalid_argument_names_the_field(wrong):
    params = pb.SamplingParams(**{"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8, **wrong})
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        codec.sampling_from_proto(params)


def test_chat_when_a_role_is_unknown_then_invalid_argument():
    prompt = pb.ChatPrompt(messages=[pb.ChatMessage(role="robot", content="x")])
    with pytest.raises(InvalidArgumentError, match="robot"):
        codec.chat_from_proto(prompt)


def test_outcome_when_sent_then_comes_back_equal():
    outcome = Outcome(
        b"\x00s", 0.5, {"legal": 1.0}, True, False, "{}", {"a": (Message("user", "x"),)}
    )
    assert codec.outcome_from_proto(codec.outcome_to_proto(outcome)) == outcome


@pytest.mark.parametrize(
    "state",
    [PolicyState("p", 0, "d", (0,), (1,)), PolicyState("p", None, "", (), (0,))],
)
def test_policy_state_when_sent_then_comes_back_equal(state):
    assert codec.policy_state_from_proto(codec.policy_state_to_proto(state)) == state


def test_tools_and_calls_when_sent_then_come_back_with_the_observation() -> None:
    tool = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
    called = (
        Message("user", "1 + 2?"),
        Message("assistant", "", (ToolCall("add", '{"a": 1}'),)),
        Message("tool", "3"),
    )
    seen = BoundedObservation(called, 7, (tool,))
    for back in (
        codec.observation_from_proto(codec.observation_to_proto(seen)),
        codec.chat_from_proto(codec.chat_to_proto(seen)),
    ):
        assert (back, tools_of(back)) == (seen, (tool,))


def test_tool_when_its_parameters_are_no_schema_then_is_refused() -> None:
    prompt = pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content="x")])
    prompt.tools.add(name="add", parameters_json="[1]")
    with pytest.raises(InvalidArgumentError, match="no JSON schema"):
        codec.chat_from_proto(prompt)


def test_prompt_when_it_has_no_tools_then_is_on_the_wire_what_it_was() -> None:
    plain = (Message("user", "hello"),)
    old = pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content="hello")])
    assert codec.chat_to_proto(plain).SerializeToString() == old.SerializeToString()
