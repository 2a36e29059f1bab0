"""The REST application: routes, errors, OpenAPI, health and metrics."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from redis.asyncio import Redis
from starlette.responses import JSONResponse, Response

from services.router.jobs.desk import Desk
from services.router.jobs.store import JobStore
from services.router.membership import MemberStore
from services.router.rest import problems
from services.router.rest.jobs import job_routes
from services.router.rest.tables import table_routes
from troupe import __version__


@dataclass(frozen=True, slots=True)
class RestParts:
    """What the routes need. ``is_ready`` says whether the router can take jobs now."""

    redis: Redis
    store: JobStore
    desk: Desk
    members: MemberStore
    is_ready: Callable[[], Awaitable[bool]]
    max_body_bytes: int


def create_app(parts: RestParts) -> FastAPI:
    """The application over ``parts``."""
    app = FastAPI(
        title="Troupe",
        version=__version__,
        summary="Train teams of LLM agents with on-policy reinforcement learning.",
        docs_url="/docs",
        redoc_url=None,
    )
    problems.install(app)
    app.include_router(job_routes(parts.redis, parts.store, parts.desk, parts.max_body_bytes))
    app.include_router(table_routes(parts.members))

    async def livez() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def readyz() -> Response:
        if await parts.is_ready():
            return JSONResponse({"status": "ok"})
        return problems.problem(503, "UNAVAILABLE", "the router's Redis does not answer")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/livez", livez, tags=["health"], summary="The process runs")
    app.add_api_route("/readyz", readyz, tags=["health"], summary="The router can take jobs")
    app.add_api_route("/metrics", metrics, include_in_schema=False)
    return app
