"""Stands before every route: who asks, what the key allows, and how often.

Owns authentication, scopes and rate limits; ``site`` knows which pages may act here. Public:
health, the page's own files and the OpenAPI document, which hold nothing of any job.
"""

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Receive, Scope, Send

from troupe.clients.rest.errors import ForbiddenError, TooManyError, UnauthenticatedError
from troupe.clients.rest.models import Scope as KeyScope
from troupe.errors import TroupeError
from troupe_router.rest.api_keys import ANYBODY, Caller, KeyStore
from troupe_router.rest.origins import check_host, check_origin
from troupe_router.rest.problems import answer_to

COOKIE = "troupe_key"
CALLER = "troupe.caller"
_GUARDED = ("/v1/", "/metrics")
_OPEN = "/v1/session"
_FAILED_PER_S = 5.0
"""Wrong keys that one address may try, a second."""
_FAILED_BURST = 20
_MAX_BUCKETS = 10_000


class Gate:
    """ASGI middleware. ``rate_per_s`` 0: no limit but those of keys."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyStore,
        rate_per_s: float,
        burst: int,
        hosts: Sequence[str] = (),
        guesses: "Guesses | None" = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._hosts = hosts
        self._buckets = Buckets()
        self._guesses = guesses or Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer with a problem."""
        if scope["type"] != "http" or not scope["path"].startswith(_GUARDED):
            await self._app(scope, receive, send)
            return
        try:
            scope[CALLER] = self._admit(scope)
        except TroupeError as error:
            await answer_to(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> Caller:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if not self._keys.is_on:
            check_host(headers, self._hosts)
        # A page can send the cookie of this site, and no bearer key of its own.
        if not self._keys.is_on or key_of(headers)[1] or scope["path"].startswith(_OPEN):
            check_origin(headers)
        address = (scope.get("client") or ("",))[0]
        caller = self._caller(headers, address, is_needed=not scope["path"].startswith(_OPEN))
        if caller is None:
            return Caller("", ())
        wanted = scope_of(scope["method"])
        if wanted not in caller.scopes and not scope["path"].startswith(_OPEN):
            raise ForbiddenError(
                f"the key '{caller.name}' may {', '.join(caller.scopes)}; {scope['method']} here "
                f"needs '{wanted}'"
            )
        rate = caller.rate_per_s or self._rate_per_s
        if rate > 0:
            self._buckets.take(caller.name or address, rate, self._burst)
        return caller

    def _caller(
        self, headers: Mapping[str, str], address: str, *, is_needed: bool
    ) -> Caller | None:
        if not self._keys.is_on:
            return ANYBODY
        key, is_by_cookie = key_of(headers)
        if not key:
            if is_needed:
                raise UnauthenticatedError(
                    "this router asks for an API key; send Authorization: Bearer <key>"
                )
            return None
        try:
            return self._keys.caller(key, is_by_cookie=is_by_cookie)
        except UnauthenticatedError:
            # Where no key is needed the answer still tells whether this one is known.
            self._guesses.failed(address)
            if not is_needed:
                return None
            raise


class Buckets:
    """Token buckets by name; the least used are forgotten."""

    def __init__(self) -> None:
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate_per_s: float, burst: int) -> None:
        """Take one token; raises TooManyError when there is none."""
        now = time.monotonic()
        level, at = self._levels.pop(name, (float(burst), now))
        level = min(float(burst), level + (now - at) * rate_per_s)
        self._levels[name] = (max(0.0, level - 1.0), now)
        while len(self._levels) > _MAX_BUCKETS:
            self._levels.popitem(last=False)
        if level < 1.0:
            self._levels[name] = (level, now)
            wait_s = (1.0 - level) / rate_per_s
            raise TooManyError(
                f"more than {rate_per_s:g} requests a second; ask again in {wait_s:.2f} s",
                retry_after_s=wait_s,
            )


class Guesses:
    """Wrong keys of each address, wherever they are tried: a header, a cookie or the sign-in."""

    def __init__(self) -> None:
        self._buckets = Buckets()

    def failed(self, address: str) -> None:
        """Count one; raises TooManyError beyond ``_FAILED_PER_S``."""
        self._buckets.take(address, _FAILED_PER_S, _FAILED_BURST)


def scope_of(method: str) -> KeyScope:
    """What a request needs: to read, to submit (and steer jobs), or to delete."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return "read"
    return "admin" if method == "DELETE" else "submit"


def key_of(headers: Mapping[str, str]) -> tuple[str, bool]:
    """The key of a request, and whether it came as a cookie; empty without one."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip(), False
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return "", False
    return (cookie.value, True) if cookie else ("", False)
