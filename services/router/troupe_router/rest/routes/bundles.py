"""Routes of bundles: code that a job brings along is uploaded under its digest."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from troupe.clients.rest.models.bundles import BundleDocument, BundleList
from troupe_router.rest.access.api_keys import Caller
from troupe_router.rest.bodies import read_archive
from troupe_router.rest.openapi import EVERY, OF_BODIES, problems
from troupe_router.rest.parts import Parts, WhoAsks
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(prefix="/v1/bundles", tags=["bundles"], route_class=StrictRoute, responses=EVERY)
Digest = Annotated[
    str,
    Path(
        description="`sha256:` and the hexadecimal digest of the archive.",
        max_length=100,
        examples=[f"sha256:{'0' * 64}"],
    ),
]
_TAR = "application/x-tar"
_FILE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


@routes.get("")
async def listed(parts: Parts, caller: WhoAsks) -> BundleList:
    """Bundles of the caller; with the scope admin all of them."""
    return BundleList(bundles=await asyncio.to_thread(parts.bundles.page, _owner(caller)))


@routes.put(
    "/{digest}",
    status_code=201,
    responses={
        200: {"description": "It was there", "model": BundleDocument},
        **problems(409, *OF_BODIES),
    },
    openapi_extra={"requestBody": {"required": True, "content": {_TAR: _FILE}}},
)
async def upload(
    request: Request, response: Response, parts: Parts, caller: WhoAsks, digest: Digest
) -> BundleDocument:
    """Upload a bundle: the archive that `troupe submit --with` builds.

    The same digest again changes nothing (200). Needs the scope `code`.
    """
    parts.bundles.check_on()
    body = await read_archive(request, parts.settings.bundle_bytes)
    kept = await asyncio.to_thread(parts.bundles.put, digest, body, owner=caller.name)
    if not kept.is_new:
        response.status_code = 200
    return kept.document


@routes.get("/{digest}", responses=problems(404))
async def get(parts: Parts, caller: WhoAsks, digest: Digest) -> BundleDocument:
    """One bundle of the caller."""
    return await asyncio.to_thread(parts.bundles.document, digest, _owner(caller))


@routes.get(
    "/{digest}/archive",
    response_class=Response,
    responses={200: {"description": "The archive", "content": {_TAR: _FILE}}, **problems(404)},
)
async def download(parts: Parts, caller: WhoAsks, digest: Digest) -> Response:
    """Download a bundle of the caller."""
    await asyncio.to_thread(parts.bundles.document, digest, _owner(caller))
    archive = await asyncio.to_thread(parts.bundles.archive, digest)
    headers = {
        "Content-Disposition": 'attachment; filename="bundle.tar"',
        "X-Content-Type-Options": "nosniff",
    }
    return Response(archive, headers=headers, media_type=_TAR)


@routes.delete("/{digest}", status_code=204)
async def delete(parts: Parts, digest: Digest) -> None:
    """Remove a bundle; jobs that were submitted with it have their own copy."""
    await asyncio.to_thread(parts.bundles.delete, digest)


def _owner(caller: Caller) -> str | None:
    return None if "admin" in caller.scopes else caller.name
