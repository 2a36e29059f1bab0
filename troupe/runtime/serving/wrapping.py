"""Base of the interceptors that wrap every method of a server.

Owns how a handler is taken apart and rebuilt, once for each method. A subclass says what wraps it.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor
    Handler = Any

Behaviour = Callable[[Any, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Any]]
"""The function behind a method: takes a request, or an iterator of them, and a context."""


class WrappingInterceptor(_Interceptor):
    """One instance serves one server: it keeps the wrapped handler of each method.

    Health and reflection are not wrapped. No method of Troupe streams its answer: one that did
    would not be wrapped, so it is not served.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, Handler] = {}

    @abstractmethod
    def around(self, behaviour: Behaviour, method: str) -> Behaviour:
        """The function that answers ``method`` instead of ``behaviour``."""

    def prepared(self, handler: Any, method: str) -> Any:
        """The handler before it is taken apart; called for health and reflection too."""
        _ = method
        return handler

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The wrapped handler of the called method."""
        method: str = handler_call_details.method
        if (wrapped := self._wrapped.get(method)) is not None:
            return wrapped
        handler = cast("Any", await continuation(handler_call_details))
        if not handler:
            return handler
        handler = self.prepared(handler, method)
        if not method.startswith("/grpc."):
            if handler.unary_unary:
                make, behaviour = grpc.unary_unary_rpc_method_handler, handler.unary_unary
            elif handler.stream_unary:
                make, behaviour = grpc.stream_unary_rpc_method_handler, handler.stream_unary
            else:
                return cast("Any", None)
            handler = make(
                cast("Any", self.around(behaviour, method)),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        self._wrapped[method] = handler
        return handler
