"""Lets each method be called by the roles that the architecture names, and by nobody else.

Stands on servers with TLS alone: without it no peer can be told from another.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from troupe.errors import ForbiddenError
from troupe.tls.roles import CALLERS, peer_roles

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
    _Handler = grpc.RpcMethodHandler[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor
    _Handler = Any


class CallerInterceptor(_Interceptor):
    """Checks the certificate of whoever calls. Health and reflection answer every known peer.

    One is for one server: it keeps the guarded handler of each method.
    """

    def __init__(self) -> None:
        self._guarded: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Guard the handler of the called method."""
        method: str = handler_call_details.method
        if (known := self._guarded.get(method)) is not None:
            return known
        handler = cast("Any", await continuation(handler_call_details))
        if not handler or method.startswith("/grpc."):
            return handler
        if handler.unary_unary:
            make, behaviour = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        elif handler.stream_unary:
            make, behaviour = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        else:
            # No method of Troupe streams its answer: one that did would go unguarded.
            return cast("Any", None)
        guarded = self._guarded[method] = _guard(make, handler, behaviour, method)
        return guarded


def _guard(make: Any, handler: Any, behaviour: Any, method: str) -> _Handler:
    allowed = CALLERS.get(method, frozenset())

    async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        roles = peer_roles(context) or frozenset()
        if not roles & allowed:
            raise ForbiddenError(
                f"{method} is for {_listed(allowed)}, and the caller's certificate names "
                f"{_listed(roles)}. Give each service the certificate of its own role "
                "(TROUPE_TLS_CERT)."
            )
        return await behaviour(request, context)

    return make(
        guarded,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _listed(roles: frozenset[Any]) -> str:
    return " and ".join(sorted(roles)) or "no role"
