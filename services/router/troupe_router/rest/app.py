"""The REST application: routes, errors, admission and OpenAPI put together."""

from typing import Any

from fastapi import FastAPI

from troupe import __version__
from troupe.runtime.hosts import is_loopback
from troupe_router.rest import problems
from troupe_router.rest.access.access_control import AccessControl
from troupe_router.rest.openapi import complete
from troupe_router.rest.parts import RestParts
from troupe_router.rest.routes import (
    bundles,
    catalogue,
    checkpoints,
    dry_runs,
    episodes,
    events,
    health,
    jobs,
    logs,
    replicas,
    run_folders,
    runs,
    session,
)
from troupe_router.settings import RouterSettings
from troupe_router.web.routes import web_routes

_ROUTES = (
    jobs,
    dry_runs,
    events,
    runs,
    checkpoints,
    logs,
    episodes,
    run_folders,
    catalogue,
    bundles,
    replicas,
    session,
    health,
)
_PUBLIC_PER_S = 50.0
"""Requests a second of a caller on a public address, where the operator says nothing."""


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
    app.state.parts = parts
    problems.install(app, parts.disk)
    for resource in _ROUTES:
        app.include_router(resource.routes)
    app.include_router(web_routes())
    app.add_middleware(
        AccessControl,
        keys=parts.keys,
        rate_per_s=_rate(settings, is_private=is_private),
        burst=settings.rate_burst,
        hosts=settings.host_names,
        wrong_keys=parts.wrong_keys,
    )
    _complete_openapi(app)
    return app


def _rate(settings: RouterSettings, *, is_private: bool) -> float:
    if settings.rate_per_s is not None:
        return settings.rate_per_s
    return 0.0 if is_private else _PUBLIC_PER_S


def _complete_openapi(app: FastAPI) -> None:
    """Let ``/openapi.json`` say what the framework does not."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(plain())
        return app.openapi_schema

    app.openapi = openapi
