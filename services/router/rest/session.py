"""Routes of the caller's own session: who it is, sign in with a key, sign out."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from services.router.rest.bodies import answer, read_model
from services.router.rest.docs import faults, shows, takes
from services.router.rest.gate import CALLER, COOKIE
from services.router.rest.keyring import ANYBODY, Caller, Keyring
from troupe.clients.rest.models import Session, SessionRequest

_EXAMPLE = {"authentication": "keys", "name": "ci", "scopes": ["read", "submit"]}


def session_routes(keys: Keyring, max_body_bytes: int) -> APIRouter:
    """Routes of /v1/session."""
    routes = APIRouter(prefix="/v1/session", tags=["session"])

    async def show(request: Request) -> Response:
        return answer(request, _document(keys, request.scope[CALLER]))

    async def sign_in(request: Request) -> Response:
        wanted = await read_model(request, SessionRequest, max_body_bytes)
        caller = keys.caller(wanted.key) if keys.is_on else ANYBODY
        response = JSONResponse(_document(keys, caller))
        if keys.is_on:
            response.set_cookie(
                COOKIE,
                wanted.key,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
                path="/",
            )
        return response

    async def sign_out() -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    routes.add_api_route(
        "",
        show,
        summary="Who the caller is",
        response_class=Response,
        responses={**shows(Session, _EXAMPLE), **faults()},
    )
    routes.add_api_route(
        "",
        sign_in,
        methods=["POST"],
        summary="Sign a browser in: the key becomes a cookie",
        openapi_extra=takes(SessionRequest),
        response_class=Response,
        responses={**shows(Session, _EXAMPLE), **faults(413, 422)},
    )
    routes.add_api_route(
        "",
        sign_out,
        methods=["DELETE"],
        status_code=204,
        summary="Sign out: the cookie goes",
        response_class=Response,
        responses=faults(),
    )
    return routes


def _document(keys: Keyring, caller: Caller) -> dict[str, object]:
    return {
        "authentication": "keys" if keys.is_on else "off",
        "name": caller.name or None,
        "scopes": list(caller.scopes),
    }
