"""Routes of the router's health and metrics, and of where Prometheus finds the jobs' processes."""

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from troupe.clients.rest.models.health import HealthDocument
from troupe.errors import UnavailableError
from troupe_router.members.scrape_targets import scrape_targets
from troupe_router.rest.openapi import problems
from troupe_router.rest.parts import Parts

routes = APIRouter(tags=["health"])


@routes.get("/livez", summary="The process runs")
async def livez() -> HealthDocument:
    """Never looks at what the router depends on."""
    return HealthDocument(status="ok")


@routes.get("/readyz", summary="The router can take jobs", responses=problems(503))
async def readyz(parts: Parts) -> HealthDocument:
    """Asks Redis."""
    if not await parts.is_ready():
        raise UnavailableError("the router's Redis does not answer")
    return HealthDocument(status="ok")


@routes.get("/metrics", include_in_schema=False)
async def metrics() -> Response:
    """The router's own metrics."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@routes.get("/metrics/targets", include_in_schema=False)
async def targets(parts: Parts) -> list[dict[str, Any]]:
    """The same as at the admin port, which asks for no key."""
    return await scrape_targets(parts.members)
