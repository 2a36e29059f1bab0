"""Admits a request or refuses it: who asks, what the key allows, and how often.

Owns authentication and scopes; ``origins`` knows which pages may act here. Public: health, the
page's own files and the OpenAPI document, which hold nothing of any job.
"""

from collections.abc import Callable, Mapping, Sequence

from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from troupe.clients.rest.errors import ForbiddenError, UnauthenticatedError
from troupe.clients.rest.models.session import Scope as KeyScope
from troupe.errors import TroupeError
from troupe_router.rest.access.api_keys import ANYBODY, Caller, KeyStore
from troupe_router.rest.access.origins import check_host, check_origin
from troupe_router.rest.access.rate_limits import RateLimits, WrongKeys
from troupe_router.rest.problems import answer_to

COOKIE = "troupe_key"
CALLER = "troupe.caller"
_GUARDED = ("/v1/", "/metrics")
_OPEN = "/v1/session"


class AccessControl:
    """ASGI middleware. ``rate_per_s`` 0: no limit but those of keys."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyStore,
        rate_per_s: float,
        burst: int,
        hosts: Sequence[str] = (),
        prefix: str = "TROUPE_ROUTER_",
        wrong_keys: WrongKeys,
        answer: Callable[[TroupeError], ASGIApp] = answer_to,
    ) -> None:
        """``prefix``: of the service's settings; ``answer``: what a refused caller gets."""
        self._app = app
        self._answer = answer
        self._keys = keys
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._hosts, self._prefix = hosts, prefix
        self._limits = RateLimits()
        self._wrong_keys = wrong_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer with a problem."""
        if scope["type"] != "http" or not scope["path"].startswith(_GUARDED):
            await self._app(scope, receive, send)
            return
        try:
            scope[CALLER] = self._admit(scope)
        except TroupeError as error:
            await self._answer(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> Caller:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if not self._keys.is_on:
            check_host(headers, self._hosts, self._prefix)
        # A page can send the cookie of this site, and no bearer key of its own.
        if not self._keys.is_on or key_of(headers)[1] or scope["path"].startswith(_OPEN):
            check_origin(headers)
        address = (scope.get("client") or ("",))[0]
        caller = self._caller(headers, address, is_needed=not scope["path"].startswith(_OPEN))
        if caller is None:
            return Caller("", ())
        wanted = scope_of(scope["method"], scope["path"])
        if not set(wanted) <= set(caller.scopes) and not scope["path"].startswith(_OPEN):
            raise ForbiddenError(
                f"the key '{caller.name}' may {', '.join(caller.scopes)}; {scope['method']} here "
                f"needs '{' and '.join(wanted)}'"
            )
        rate = caller.rate_per_s or self._rate_per_s
        if rate > 0:
            self._limits.take(caller.name or address, rate, self._burst)
        return caller

    def _caller(
        self, headers: Mapping[str, str], address: str, *, is_needed: bool
    ) -> Caller | None:
        if not self._keys.is_on:
            return ANYBODY
        key, is_by_cookie = key_of(headers)
        if not key:
            if is_needed:
                raise UnauthenticatedError("an API key is needed; send Authorization: Bearer <key>")
            return None
        try:
            return self._keys.caller(key, is_by_cookie=is_by_cookie)
        except UnauthenticatedError:
            # Where no key is needed the answer still tells whether this one is known.
            self._wrong_keys.count(address)
            if not is_needed:
                return None
            raise


def scope_of(method: str, path: str) -> tuple[KeyScope, ...]:
    """What a request needs: to read, to submit (and steer jobs), or to delete.

    Bundles need the scope of code beside it: also to read, for they are code of others.
    """
    wanted: KeyScope = "submit"
    if method in ("GET", "HEAD", "OPTIONS"):
        wanted = "read"
    elif method == "DELETE":
        wanted = "admin"
    return (wanted, "code") if path.startswith("/v1/bundles") else (wanted,)


def key_of(headers: Mapping[str, str]) -> tuple[str, bool]:
    """The key of a request, and whether it came as a cookie; empty without one."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip(), False
    # Other programs of the same host set cookies that http.cookies stops at.
    key = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
    return key, bool(key)
