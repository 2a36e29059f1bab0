"""What every route adds to FastAPI: unknown parameters are refused, unchanged answers get a 304.

FastAPI refuses unknown parameters only where a route has a query model, and knows no ETag.
"""

import hashlib
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from troupe.errors import InvalidArgumentError
from troupe.spec.issues import suggest

_JSON = "application/json"


class StrictRoute(APIRoute):
    """A route that refuses a parameter it does not know: a filter with a typo filters nothing.

    Its summary is the first paragraph of the endpoint's docstring, its description the rest.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        summary, _, about = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
        options.update(
            summary=summary.replace("\n", " ").removesuffix("."),
            response_description="Done",
        )
        super().__init__(path, endpoint, **options)
        self.description = about
        if "GET" in (self.methods or ()) and self.response_field is not None:
            self.responses[304] = {"description": "The client has it already (If-None-Match)"}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's handler, between the check and the ETag."""
        known = list(_names(self.dependant.query_params))
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            for name in request.query_params:
                if name not in known:
                    hint = suggest(name, known) if known else "this path takes none"
                    raise InvalidArgumentError(
                        f"there is no parameter '{name[:80]}'; {hint}",
                        pointer=f"/query/{name[:80]}",
                    )
            return _tagged(request, await handle(request))

        return checked


def _names(parameters: list[Any]) -> list[str]:
    """Names of query parameters; a query model stands for its fields."""
    names: list[str] = []
    for parameter in parameters:
        fields: Mapping[str, Any] | None
        fields = getattr(parameter.field_info.annotation, "model_fields", None)
        names += [parameter.alias] if fields is None else list(fields)
    return names


def _tagged(request: Request, response: Response) -> Response:
    """A JSON answer with its ETag; 304 without a body when the client has it already."""
    is_json = response.headers.get("content-type") == _JSON
    if request.method != "GET" or response.status_code != 200 or not is_json:
        return response
    tag = f'W/"{hashlib.blake2b(response.body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response
