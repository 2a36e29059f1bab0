"""A route as data, so that a resource's table of routes reads as one.

Owns how a route is declared to the framework. Never answers.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from troupe.errors import InvalidArgumentError
from troupe.spec.issues import suggest
from troupe_router.rest.openapi import Responses, faults


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    ``answers`` are those that went well; ``faults`` are the problems it may give beside those that
    every route may. ``body`` describes a body that the endpoint reads by itself.
    """

    path: str
    endpoint: Callable[..., Any]
    summary: str
    answers: Responses
    faults: tuple[int, ...] = (404, 422)
    method: str = "GET"
    status: int = 200
    description: str | None = None
    body: dict[str, Any] | None = None
    response: type[Response] = Response


class StrictRoute(APIRoute):
    """A route that refuses a parameter it does not know: a filter with a typo filters nothing."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler behind the check."""
        known = [field.alias for field in self.dependant.query_params]
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            for name in request.query_params:
                if name not in known:
                    hint = suggest(name, known) if known else "this path takes none"
                    raise InvalidArgumentError(
                        f"there is no parameter '{name[:80]}'; {hint}",
                        pointer=f"/query/{name[:80]}",
                    )
            return await handle(request)

        return checked


def routed(prefix: str, tag: str, *routes: Route) -> APIRouter:
    """The routes of one resource."""
    found = APIRouter(prefix=prefix, tags=[tag], route_class=StrictRoute)
    for route in routes:
        found.add_api_route(
            route.path,
            route.endpoint,
            methods=[route.method],
            status_code=route.status,
            summary=route.summary,
            description=route.description,
            openapi_extra=route.body,
            response_class=route.response,
            responses={**route.answers, **faults(422, *route.faults)},
        )
    return found
