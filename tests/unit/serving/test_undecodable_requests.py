"""What a servicer sees of bytes that are no message of its method."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from no_memory import NoMemory

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.serving.decoding import refusing_malformed

JUNK = b"\x07"


class Aborted(Exception):
    """Ends a call as a context's abort does."""


class Context:
    """Tells each abort by its code and words."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: Any) -> None:
        raise Aborted(code, details)


async def sent(data: bytes, decode: Any) -> AsyncIterator[Any]:
    yield decode(data)


async def last_of(requests: AsyncIterator[Any], context: Any) -> Any:
    """A servicer's stream: what is raised in it reaches the servicer first."""
    return [request async for request in requests][-1]


async def test_stream_when_a_message_is_junk_then_raised_and_not_aborted_within_the_servicer():
    """An abort under the servicer's own deadline may be cancelled, and then made a second time."""
    made = grpc.stream_unary_rpc_method_handler(last_of, pb.UpdateWeightsRequest.FromString)
    handler = refusing_malformed(made, "/troupe.api.rollout.v1.RolloutService/UpdateWeights")
    decode = handler.request_deserializer
    with pytest.raises(InvalidArgumentError, match="UpdateWeights"):
        await handler.stream_unary(sent(JUNK, decode), Context())
    sound = pb.UpdateWeightsRequest(epoch=3)
    seen = await handler.stream_unary(sent(sound.SerializeToString(), decode), Context())
    assert seen == sound


async def test_call_when_gRPCs_own_service_gets_junk_then_aborted_since_nothing_is_around_it():
    async def answer(request: Any, context: Any) -> Any:
        return request

    made = grpc.unary_unary_rpc_method_handler(answer, pb.GetStatusRequest.FromString)
    handler = refusing_malformed(made, "/grpc.health.v1.Health/Check")
    with pytest.raises(Aborted, match="INVALID_ARGUMENT"):
        await handler.unary_unary(handler.request_deserializer(JUNK), Context())


async def test_call_when_there_is_no_memory_to_read_it_then_may_be_tried_again():
    made = grpc.stream_unary_rpc_method_handler(last_of, NoMemory.FromString)
    handler = refusing_malformed(made, "/troupe.api.rollout.v1.RolloutService/UpdateWeights")
    with pytest.raises(UnavailableError, match="UpdateWeights"):
        await handler.stream_unary(sent(b"", handler.request_deserializer), Context())


async def test_call_when_its_method_takes_bytes_then_they_reach_it_as_they_are():
    async def answer(request: bytes, context: Any) -> bytes:
        return request

    handler = refusing_malformed(grpc.unary_unary_rpc_method_handler(answer), "/bench.Floor/Wait")
    assert handler.request_deserializer is None
    assert await handler.unary_unary(JUNK, Context()) == JUNK
