"""Restricts each method to the roles that the architecture allows to call it.

Installed only on servers with TLS: without it one peer can't be distinguished from another.
"""

from typing import Any

import grpc.aio

from troupe.errors import ForbiddenError
from troupe.runtime.serving.wrapping import Behaviour, WrappingInterceptor
from troupe.runtime.tls.roles import CALLERS, peer_roles


class CallerInterceptor(WrappingInterceptor):
    """Checks the caller's certificate. Health and reflection answer every authenticated peer."""

    def around(self, behaviour: Behaviour, method: str) -> Behaviour:
        """``behaviour``, only for the roles that may call ``method``."""
        allowed = CALLERS.get(method, frozenset())

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            roles = peer_roles(context) or frozenset()
            if not roles & allowed:
                raise ForbiddenError(
                    f"{method} is for {_listed(allowed)}, and the caller's certificate names "
                    f"{_listed(roles)}. Give each service the certificate of its role "
                    "(TROUPE_TLS_CERT)."
                )
            return await behaviour(request, context)

        return guarded


def _listed(roles: frozenset[Any]) -> str:
    return " and ".join(sorted(roles)) or "no role"
