"""Routes of recorded episodes: filtered pages, one episode's whole tree, images of prompts."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from troupe.clients.rest.models.episode_tree import EpisodeDocument
from troupe.clients.rest.models.episodes import EpisodePage, EpisodePageQuery
from troupe.vision.png import MIME_TYPE
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.rest.openapi import EVERY, problems
from troupe_router.rest.parts import JobId, Parts
from troupe_router.rest.strict_route import StrictRoute
from troupe_router.run.episode_images import read_image
from troupe_router.run.episode_pages import episode_page
from troupe_router.run.episode_view import episode_document

routes = APIRouter(
    prefix="/v1/jobs/{job_id}/episodes",
    tags=["episodes"],
    route_class=StrictRoute,
    responses={**EVERY, **problems(404)},
)
EpisodeId = Annotated[str, Path(max_length=200, examples=["train-00004-00017"])]
ImageDigest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", examples=["0123456789abcdef" * 4])]
_IMAGE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=31536000, immutable",
}


@routes.get("")
async def page(
    parts: Parts, job_id: JobId, query: Annotated[EpisodePageQuery, Query()]
) -> EpisodePage:
    """Recorded episodes.

    Rewards filter and order by the mean reward of `agent`, or of the whole episode. `failure=any`
    gives those that did not solve the task.
    """
    job = await parts.store.get(job_id)
    return await asyncio.to_thread(
        episode_page, job.run_dir, query, limit=query.limit, cursor=query.cursor
    )


@routes.get("/{episode_id}")
async def one(parts: Parts, job_id: JobId, episode_id: EpisodeId) -> EpisodeDocument:
    """One episode: every turn with all siblings."""
    job = await parts.store.get(job_id)
    allowed = Allowlist.from_settings(parts.settings)
    return await asyncio.to_thread(episode_document, job.run_dir, job.spec, episode_id, allowed)


@routes.get(
    "/images/{digest}",
    response_class=Response,
    responses={200: {"content": {MIME_TYPE: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def image(parts: Parts, job_id: JobId, digest: ImageDigest) -> Response:
    """An image that a prompt of a recorded episode shows, as PNG.

    `digest` is that of a part of the prompt's message.
    """
    job = await parts.store.get(job_id)
    png = await asyncio.to_thread(read_image, job.run_dir, digest)
    return Response(png, media_type=MIME_TYPE, headers=_IMAGE_HEADERS)
