"""Bytes from the wire and from streams: a message that is handled, or a refusal that is ours."""

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from fuzzing import bounded, fuzzed, hostile_texts, json_values, mutated_bytes, nested_json
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from troupe.api.env.v1 import env_pb2
from troupe.api.records.v1 import records_pb2
from troupe.api.rollout.v1 import rollout_pb2
from troupe.api.router.v1 import router_pb2
from troupe.api.trainer.v1 import trainer_pb2
from troupe.candidates import generation_from_proto, group_outcome
from troupe.clients import codec
from troupe.episodes.lines import episode_line
from troupe.errors import (
    InvalidArgumentError,
    NotFoundError,
    StateChangedError,
    TroupeError,
    WeightsRejectedError,
)
from troupe.ids import prompt_digest
from troupe.runtime.weights import check_declared
from troupe_env.families import Families
from troupe_env.judging_pool import judged
from troupe_router.members.store import Member, _decode, _encode, _last_words
from troupe_router.servicer import _checked
from troupe_trainer.learn.validation import Expected, fault
from troupe_trainer.samples import credit

PACKAGES = (env_pb2, records_pb2, rollout_pb2, router_pb2, trainer_pb2)
MESSAGES = {
    f"{package.DESCRIPTOR.package}.{name}": getattr(package, name)
    for package in PACKAGES
    for name in package.DESCRIPTOR.message_types_by_name
}


def _values(field: Any) -> st.SearchStrategy[Any]:
    """Values of one field of a message, odd ones among them."""
    kind = field.cpp_type
    if kind == field.CPPTYPE_MESSAGE:
        return messages(field.message_type._concrete_class, depth=2)
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return st.binary(max_size=30)
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if kind == field.CPPTYPE_BOOL:
        return st.booleans()
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return st.floats(width=32)
    if kind == field.CPPTYPE_ENUM:
        return st.integers(0, 9)
    bits = 64 if kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
    return st.integers(0, 2**bits - 1) | st.integers(0, 3)


@st.composite
def messages(draw: st.DrawFn, cls: type[Message], depth: int = 0) -> Message:
    """A message of ``cls`` with some of its fields set to anything that the wire can carry."""
    made = cls()
    for field in cls.DESCRIPTOR.fields:
        if depth > 2 or not draw(st.booleans()):
            continue
        held = getattr(made, field.name)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            key, value = (field.message_type.fields_by_name[n] for n in ("key", "value"))
            for name in draw(st.lists(_values(key), max_size=2)):
                if value.message_type is None:
                    held[name] = draw(_values(value))
                else:
                    held[name].CopyFrom(draw(_values(value)))
        elif field.is_repeated:
            held.extend(draw(st.lists(_values(field), max_size=3)))
        elif field.message_type is not None:
            held.CopyFrom(draw(_values(field)))
        else:
            setattr(made, field.name, draw(_values(field)))
    return made


def wired(cls: type[Message]) -> st.SearchStrategy[bytes]:
    return mutated_bytes(messages(cls).map(lambda m: m.SerializeToString()))


@pytest.mark.parametrize("name", MESSAGES)
def test_message_when_any_bytes_then_decoded_to_what_encodes_alike_or_refused(name: str) -> None:
    cls = MESSAGES[name]

    @fuzzed(8)
    @given(wired(cls))
    def holds(data: bytes) -> None:
        with bounded():
            try:
                found = cls.FromString(data)
            except DecodeError:
                return
            again = cls.FromString(found.SerializeToString())
            assert again.SerializeToString(deterministic=True) == found.SerializeToString(
                deterministic=True
            )

    holds()


CODECS: dict[str, tuple[type[Message], Callable[[Any], Any]]] = {
    "chat": (rollout_pb2.ChatPrompt, codec.chat_from_proto),
    "observation": (env_pb2.Observation, codec.observation_from_proto),
    "sampling": (rollout_pb2.SamplingParams, codec.sampling_from_proto),
    "generation": (rollout_pb2.GenerateResponse, generation_from_proto),
    "policy state": (rollout_pb2.PolicyStatus, codec.policy_state_from_proto),
    "outcome": (env_pb2.StepOutcome, codec.outcome_from_proto),
    "split": (env_pb2.TaskRef, lambda ref: codec.split_from_text(ref.split)),
    "member": (router_pb2.Replica, lambda replica: _stored_member(Member(replica, "job", ("p",)))),
    "group line": (records_pb2.Group, lambda group: _told(group)),
    "trained group": (records_pb2.Group, lambda group: _trained(group)),
    "manifest": (
        records_pb2.WeightsManifest,
        lambda manifest: _rejected_in_words(lambda: check_declared(manifest, max_bytes=2**30)),
    ),
}


class Insecure:
    """The context of a call without TLS."""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}


def _stored_member(member: Member) -> None:
    _checked(member.replica, Insecure())
    assert _decode(_encode(member)) == member
    json.loads(_last_words(member))


def _told(group: records_pb2.Group) -> None:
    """Groups that reach a file were made by this router: their digests and info are sound."""
    for candidate in group.candidates:
        candidate.info_json = "{}"
        candidate.prompt_digest = group.prompts[0].digest if group.prompts else ""
    if group.prompts or group.key != records_pb2.GROUP_KEY_TASK:
        json.dumps(episode_line(records_pb2.Episode(groups=[group])))


def _trained(group: records_pb2.Group) -> None:
    """Whatever passes the checks can be trained; a greedy baseline is compared with, not learnt."""
    for prompt in group.prompts:
        prompt.digest = prompt_digest(prompt.token_ids)
    for candidate in group.candidates:
        candidate.prompt_digest = group.prompts[0].digest if group.prompts else ""
        del candidate.rollout_logprobs[len(candidate.token_ids) :]
        missing = len(candidate.token_ids) - len(candidate.rollout_logprobs)
        candidate.rollout_logprobs.extend([-1.0] * missing)
    expected = Expected(group.job_id, group.policy, group.step, 2**64 - 1, 2**32, 2**64)
    if fault(group, expected) is None:
        credited = credit(group, [0.5] * len(group.candidates), 1.0)
        num_trained = sum(not candidate.is_baseline for candidate in group.candidates)
        assert sum(len(prompt.samples) for prompt in credited.prompts) == num_trained
        group_outcome(group)


def _rejected_in_words(check: Callable[[], None]) -> None:
    try:
        check()
    except WeightsRejectedError as error:
        error.message.encode()


@pytest.mark.parametrize("name", CODECS)
def test_codec_when_any_message_then_a_value_or_an_error_of_ours(name: str) -> None:
    cls, decode = CODECS[name]

    @fuzzed(40)
    @given(messages(cls))
    def holds(message: Message) -> None:
        with bounded():
            try:
                decode(message)
            except TroupeError as error:
                assert error.message

    holds()


FAMILIES = Families(4)


@fuzzed(60)
@given(
    name=st.sampled_from(["plan_path", "sokoban", "hanabi", "tldr", "os:system", "", "x:y", "a:"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    params=json_values().map(json.dumps)
    | hostile_texts()
    | st.sampled_from([nested_json(100_000, "list"), '{"size": 1e999}', '{"size": NaN}']),
)
def test_environment_when_any_name_and_params_then_loaded_or_refused(
    name: str, params: str
) -> None:
    with bounded():
        try:
            FAMILIES.get(name, params)
        except (InvalidArgumentError, NotFoundError) as error:
            assert error.message


STATEFUL = (
    "plan_path",
    "sokoban",
    "sudoku",
    "eight_queens",
    "blocksworld",
    "hanabi",
    "tic_tac_toe",
    "tldr",
    "arxiv_expansion",
)


@pytest.mark.parametrize("name", STATEFUL)
def test_state_when_any_bytes_then_judged_or_refused(name: str) -> None:
    """A state comes back from the router; one that is broken is the caller's fault, not a bug.

    With the seal of a state that an env gave out, it is refused unless it is that very state.
    """
    loaded = Families(1).get(name, "{}")
    first = [loaded.environment.reset(loaded.taskset.task("train", index)) for index in range(3)]

    @fuzzed(20)
    @given(
        state=mutated_bytes(st.sampled_from(first)),
        seed=st.integers(0, 99),
        is_sealed=st.booleans(),
    )
    def holds(state: bytes, seed: int, is_sealed: bool) -> None:
        agent = loaded.family.agents[seed % len(loaded.family.agents)]
        action = loaded.family.random_action(first[0], loaded.family.agents[0], Random(seed))
        with bounded():
            try:
                seal = loaded.seals.sealed(first[seed % 3]).seal if is_sealed else b""
                outcomes = judged(loaded, state, seal, agent, [action], [agent])
            except StateChangedError:
                assert is_sealed and state != first[seed % 3]
                return
            except InvalidArgumentError as error:
                assert not is_sealed and error.message
                return
        assert not is_sealed or state == first[seed % 3]
        assert all(math.isfinite(outcome.team_reward) for outcome in outcomes)

    holds()
