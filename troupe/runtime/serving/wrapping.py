"""Interceptors that put something around every method of a server.

Owns how a handler is taken apart and built again, once for each method. What goes around it is the
subclass's.
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
"""What answers a method: request, or iterator of requests, and context to answer."""


class WrappingInterceptor(_Interceptor):
    """One is for one server: it keeps the wrapped handler of each method.

    Health and reflection are left as they are. No method of Troupe streams its answer: one that did
    would go without what is put around the others, so it is not served.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, Handler] = {}

    @abstractmethod
    def around(self, behaviour: Behaviour, method: str) -> Behaviour:
        """What answers ``method`` instead of ``behaviour``."""

    def prepared(self, handler: Any, method: str) -> Any:
        """The handler before it is taken apart, also of health and reflection."""
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
