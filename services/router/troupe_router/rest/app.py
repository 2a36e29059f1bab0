"""The REST application: routes, errors, OpenAPI, health and metrics."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from redis.asyncio import Redis
from starlette.responses import JSONResponse, Response

from troupe import __version__
from troupe.clients.rest.models import Health
from troupe.runtime.hosts import is_loopback
from troupe_router.conduct.progress import ProgressReader
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.store import MemberStore
from troupe_router.rest import problems
from troupe_router.rest.access import Gate, Guesses
from troupe_router.rest.api_keys import KeyStore
from troupe_router.rest.catalogue import catalogue_routes
from troupe_router.rest.downloads import download_routes
from troupe_router.rest.episodes import episode_routes
from troupe_router.rest.event_fanout import EventFanout
from troupe_router.rest.events import event_routes
from troupe_router.rest.jobs import job_routes
from troupe_router.rest.log_routes import log_routes
from troupe_router.rest.openapi import complete, faults, shows
from troupe_router.rest.prometheus_targets import add_scrape_targets
from troupe_router.rest.replicas import replica_routes
from troupe_router.rest.runs import run_routes
from troupe_router.rest.session import session_routes
from troupe_router.run.series import MetricLines
from troupe_router.settings import RouterSettings
from troupe_router.web.routes import web_routes

_PUBLIC_PER_S = 50.0
"""Requests a second of a caller on a public address, where the operator says nothing."""


@dataclass(frozen=True, slots=True)
class RestParts:
    """What the routes need. ``is_ready`` says whether the router can take jobs now."""

    settings: RouterSettings
    redis: Redis
    store: JobStore
    commands: JobCommands
    members: MemberStore
    fanout: EventFanout
    is_ready: Callable[[], Awaitable[bool]]
    keys: KeyStore = field(default_factory=lambda: KeyStore(None))


def create_app(parts: RestParts) -> FastAPI:
    """The application over ``parts``."""
    settings = parts.settings
    is_private = is_loopback(settings.rest_address.rpartition(":")[0])
    app = FastAPI(
        title="Troupe",
        version=__version__,
        summary="Train teams of LLM agents with on-policy reinforcement learning.",
        # That page runs a script of another host, in the browser that holds the key.
        docs_url="/docs" if is_private else None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    guesses = Guesses()
    progress = ProgressReader(parts.redis, parts.members, settings)
    for routes in (
        job_routes(parts.store, parts.commands, settings.max_body_bytes),
        event_routes(parts.redis, parts.store, parts.fanout, parts.keys),
        run_routes(parts.redis, parts.store, progress, MetricLines()),
        download_routes(parts.store),
        log_routes(parts.store),
        episode_routes(parts.store),
        catalogue_routes(),
        replica_routes(parts.redis, parts.store, parts.commands, parts.members),
        session_routes(parts.keys, settings.max_body_bytes, guesses),
        web_routes(),
    ):
        app.include_router(routes)
    _add_health(app, parts)
    app.add_middleware(
        Gate,
        keys=parts.keys,
        rate_per_s=_rate(settings, is_private=is_private),
        burst=settings.rate_burst,
        hosts=settings.host_names,
        guesses=guesses,
    )
    _complete_openapi(app)
    return app


def _rate(settings: RouterSettings, *, is_private: bool) -> float:
    if settings.rate_per_s is not None:
        return settings.rate_per_s
    return 0.0 if is_private else _PUBLIC_PER_S


def _add_health(app: FastAPI, parts: RestParts) -> None:
    async def livez() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def readyz() -> Response:
        if await parts.is_ready():
            return JSONResponse({"status": "ok"})
        return problems.problem(503, "UNAVAILABLE", "the router's Redis does not answer")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    for path, endpoint, summary in (
        ("/livez", livez, "The process runs"),
        ("/readyz", readyz, "The router can take jobs"),
    ):
        app.add_api_route(
            path,
            endpoint,
            tags=["health"],
            summary=summary,
            response_class=Response,
            responses={**shows(Health), **faults()},
        )
    app.add_api_route("/metrics", metrics, include_in_schema=False)
    add_scrape_targets(app, parts.members)


def _complete_openapi(app: FastAPI) -> None:
    """Let ``/openapi.json`` say what the framework does not."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(plain())
        return app.openapi_schema

    app.openapi = openapi
