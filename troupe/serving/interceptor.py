"""Turns errors of servicers into gRPC statuses, in one place, and counts calls."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from troupe.errors import DeadlineError, TroupeError
from troupe.serving.decoding import REASON_KEY, refusing_malformed
from troupe.telemetry import metrics
from troupe.telemetry.logging import get_logger

POINTER_KEY = "troupe-pointer"
"""Trailing metadata: JSON pointer into the offending document."""

_log = get_logger(__name__)
if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
    _Handler = grpc.RpcMethodHandler[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor
    _Handler = Any


class ErrorInterceptor(_Interceptor):
    """A TroupeError becomes its status and reason; anything else is logged and INTERNAL.

    One is for one server: it keeps the wrapped handler of each method.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the handler of the called method."""
        method: str = handler_call_details.method
        if (known := self._wrapped.get(method)) is not None:
            return known
        handler = cast("Any", await continuation(handler_call_details))
        if not handler:
            return handler
        handler = refusing_malformed(handler, method)
        if method.startswith("/grpc."):
            self._wrapped[method] = handler
            return handler
        if handler.unary_unary:
            make, behaviour = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        elif handler.stream_unary:
            make, behaviour = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        else:
            return handler
        wrapped = self._wrapped[method] = _rebuilt(make, handler, behaviour, method)
        return wrapped


def _rebuilt(make: Any, handler: Any, behaviour: Any, method: str) -> _Handler:
    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        started = time.perf_counter()
        code = grpc.StatusCode.OK
        try:
            return await behaviour(request, context)
        # An abort, or one that could not be sent since the caller is gone: gRPC ends both quietly.
        except grpc.aio.BaseError:
            code = context.code() or grpc.StatusCode.UNKNOWN
            raise
        except Exception as error:
            failure = _as_troupe(error, method)
            code = failure.code
            await _abort(context, failure)
        finally:
            metrics.GRPC_REQUESTS.labels(method, code.name).inc()
            metrics.GRPC_SECONDS.labels(method).observe(time.perf_counter() - started)

    return make(
        guarded,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _as_troupe(error: Exception, method: str) -> TroupeError:
    if isinstance(error, TroupeError):
        return error
    if isinstance(error, TimeoutError):
        return DeadlineError(f"{method} did not finish in time.")
    _log.error("grpc.failed", method=method, exc_info=error)
    return TroupeError(
        f"{method} failed with {type(error).__name__}: {error}. This is a bug or a broken "
        "installation; the service's log has the traceback."
    )


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: TroupeError) -> None:
    trailing = [(REASON_KEY, error.reason)]
    if error.pointer is not None and error.pointer.isascii():
        trailing.append((POINTER_KEY, error.pointer))
    await context.abort(error.code, error.message, tuple(trailing))
