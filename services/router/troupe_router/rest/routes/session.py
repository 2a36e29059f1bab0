"""Routes of the caller's own session: who it is, sign in with a key, sign out."""

from fastapi import APIRouter, Request, Response

from troupe.clients.rest.errors import UnauthenticatedError
from troupe.clients.rest.models.session import SessionDocument, SessionRequest
from troupe_router.rest.access.access_control import COOKIE
from troupe_router.rest.access.api_keys import ANYBODY, Caller
from troupe_router.rest.bodies import read_model
from troupe_router.rest.openapi import EVERY, OF_BODIES, problems, takes
from troupe_router.rest.parts import Parts, RestParts, WhoAsks
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(prefix="/v1/session", tags=["session"], route_class=StrictRoute, responses=EVERY)


@routes.get("")
async def show(parts: Parts, caller: WhoAsks) -> SessionDocument:
    """Who the caller is."""
    return _document(parts, caller)


@routes.post("", responses=problems(*OF_BODIES), openapi_extra=takes(SessionRequest))
async def sign_in(request: Request, response: Response, parts: Parts) -> SessionDocument:
    """Sign a browser in: the key becomes a cookie."""
    wanted = await read_model(request, SessionRequest, parts.settings.max_body_bytes)
    if not parts.keys.is_on:
        return _document(parts, ANYBODY)
    caller = _known(parts, wanted.key, request)
    # Where TLS ends before the router, the page's Origin, which is of this host, tells of it.
    origin = request.headers.get("Origin", "")
    is_https = request.url.scheme == "https" or origin.startswith("https://")
    response.set_cookie(
        COOKIE,
        wanted.key,
        httponly=True,
        samesite="strict",
        secure=is_https,
        path="/",
    )
    return _document(parts, caller)


@routes.delete("", status_code=204)
async def sign_out(response: Response) -> None:
    """Sign out: the cookie goes."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def _known(parts: RestParts, key: str, request: Request) -> Caller:
    try:
        return parts.keys.caller(key)
    except UnauthenticatedError:
        parts.wrong_keys.count(request.client.host if request.client else "")
        raise


def _document(parts: RestParts, caller: Caller) -> SessionDocument:
    return SessionDocument(
        authentication="keys" if parts.keys.is_on else "off",
        name=caller.name or None,
        scopes=list(caller.scopes),
    )
