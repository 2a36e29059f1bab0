"""Routes of the caller's own session: who it is, sign in with a key, sign out."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from troupe.clients.rest.errors import UnauthenticatedError
from troupe.clients.rest.models import Session, SessionRequest
from troupe_router.rest.access import CALLER, COOKIE, Guesses
from troupe_router.rest.api_keys import ANYBODY, Caller, KeyStore
from troupe_router.rest.bodies import answer, read_model
from troupe_router.rest.openapi import shows, takes
from troupe_router.rest.route import Route, routed

_EXAMPLE = {"authentication": "keys", "name": "ci", "scopes": ["read", "submit"]}


class SessionRoutes:
    """The caller's session."""

    def __init__(self, keys: KeyStore, max_body_bytes: int, guesses: Guesses) -> None:
        self._keys = keys
        self._guesses = guesses
        self._max_body_bytes = max_body_bytes

    async def show(self, request: Request) -> Response:
        return answer(request, _document(self._keys, request.scope[CALLER]))

    async def sign_in(self, request: Request) -> Response:
        wanted = await read_model(request, SessionRequest, self._max_body_bytes)
        caller = self._known(wanted.key, request) if self._keys.is_on else ANYBODY
        response = JSONResponse(_document(self._keys, caller))
        if self._keys.is_on:
            response.set_cookie(
                COOKIE,
                wanted.key,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
                path="/",
            )
        return response

    def _known(self, key: str, request: Request) -> Caller:
        try:
            return self._keys.caller(key)
        except UnauthenticatedError:
            self._guesses.failed(request.client.host if request.client else "")
            raise

    async def sign_out(self) -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response


def session_routes(keys: KeyStore, max_body_bytes: int, guesses: Guesses) -> APIRouter:
    """Routes of /v1/session."""
    own = SessionRoutes(keys, max_body_bytes, guesses)
    caller = shows(Session, _EXAMPLE)
    return routed(
        "/v1/session",
        "session",
        Route("", own.show, "Who the caller is", caller, ()),
        Route(
            "",
            own.sign_in,
            "Sign a browser in: the key becomes a cookie",
            caller,
            (413, 422),
            method="POST",
            body=takes(SessionRequest),
        ),
        Route("", own.sign_out, "Sign out: the cookie goes", {}, (), method="DELETE", status=204),
    )


def _document(keys: KeyStore, caller: Caller) -> dict[str, object]:
    return {
        "authentication": "keys" if keys.is_on else "off",
        "name": caller.name or None,
        "scopes": list(caller.scopes),
    }
