"""Refuses undecodable requests: with INVALID_ARGUMENT, or UNAVAILABLE when memory is short.

Owns what happens when the bytes of a request can't be decoded. gRPC itself would treat that as a
bug of the servicer: a traceback in the log, and UNKNOWN for the caller. Methods of Troupe raise
the refusal, and the error interceptor around them sends it; gRPC's built-in services have no such
interceptor. Never changes a message.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from troupe.clients.status import trailing_of
from troupe.errors import InvalidArgumentError, TroupeError, UnavailableError
from troupe.runtime.transient import is_transient

_SHAPES: dict[str, Callable[..., Any]] = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class _Malformed:
    """Stands in for a request whose bytes can't be decoded."""

    def __init__(self, error: DecodeError) -> None:
        self.error = error


def refusing_malformed(handler: Any, method: str) -> Any:
    """``handler``, of any kind, changed to refuse what it can't decode.

    A handler that takes raw bytes decodes nothing and stays as it is.
    """
    if handler.request_deserializer is None:
        return handler
    shape = next(name for name in _SHAPES if getattr(handler, name) is not None)
    decode: Callable[[bytes], Any] = handler.request_deserializer

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError as error:
            return _Malformed(error)

    behaviour = getattr(handler, shape)
    streams = bool(handler.request_streaming)
    check = _checked_stream if streams else _checked
    return _SHAPES[shape](
        _like(behaviour, check(method), streams=streams),
        request_deserializer=read,
        response_serializer=handler.response_serializer,
    )


def _like(behaviour: Any, check: Callable[[Any, Any], Any], *, streams: bool) -> Any:
    """``behaviour`` with checked requests; stays a generator if it was one."""

    async def answer(request: Any, context: Any) -> Any:
        if streams or isinstance(request, _Malformed):
            request = await check(request, context)
        return await behaviour(request, context)

    async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in behaviour(await check(request, context), context):
            yield message

    return answers if inspect.isasyncgenfunction(behaviour) else answer


def _checked(method: str) -> Callable[[Any, Any], Any]:
    async def check(request: Any, context: Any) -> Any:
        if isinstance(request, _Malformed):
            refusal = _refusal(method, request.error)
            # A servicer that reads a stream under a deadline would cancel an abort that takes
            # long, and raise its own error: a second abort, which gRPC calls a bug.
            if not method.startswith("/grpc."):
                raise refusal
            code = grpc.StatusCode[refusal.code]
            await context.abort(code, refusal.message, trailing_of(refusal))
        return request

    return check


def _refusal(method: str, error: DecodeError) -> TroupeError:
    if is_transient(error):
        return UnavailableError(
            f"A request to {method} can't be read for want of memory ({error}). Try again; give "
            "the service more of it."
        )
    return InvalidArgumentError(
        f"The bytes of a request to {method} cannot be decoded ({error}). Send what this "
        "release's proto files describe."
    )


def _checked_stream(method: str) -> Callable[[Any, Any], Any]:
    check_one = _checked(method)

    async def messages(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield await check_one(request, context)

    async def check(requests: AsyncIterator[Any], context: Any) -> Any:
        return messages(requests, context)

    return check
