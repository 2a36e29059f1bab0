"""Adds to OpenAPI what FastAPI cannot infer: problems, bodies read within a bound, and keys.

Owns the texts of the documentation. Answers no request.
"""

from typing import Any

from pydantic import BaseModel

from troupe.clients.rest.models.base import ProblemDocument
from troupe_router.rest.problems import MEDIA_TYPE

Responses = dict[int | str, dict[str, Any]]

_WORDS = {
    401: "No API key, or one that is not known",
    403: "The API key does not allow this",
    404: "There is no such thing",
    408: "The body comes too slowly, or not at all",
    409: "The job's state, or an earlier request, forbids it",
    413: "The body is too large",
    415: "The body is neither JSON nor YAML",
    422: "The request is not valid; `errors` has a pointer for each fault",
    429: "Too many requests or followers, or Redis is full; `Retry-After` says when",
    503: "Redis does not answer; try again",
}


def problems(*statuses: int) -> Responses:
    """Problems that a route may give."""
    return {
        status: {
            "description": _WORDS[status],
            "model": ProblemDocument,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        for status in statuses
    }


EVERY = problems(401, 403, 422, 429, 503)
"""Problems of every route under /v1."""
OF_BODIES = (408, 413, 415)
"""Problems of a route that reads a body."""


def text_or(media_type: str) -> Responses:
    """An answer that may also be of ``media_type``, by the Accept header."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON request body, which the route reads by itself within a bound."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` with the ways to send a key, and problems only as problem+json."""
    document.setdefault("components", {})["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "For routers with keys.",
        },
        "cookie": {"type": "apiKey", "in": "cookie", "name": "troupe_key"},
    }
    document["security"] = [{}, {"key": []}, {"cookie": []}]
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation.get("responses", {}).items():
                if not status.startswith("2"):
                    response.get("content", {}).pop("application/json", None)
    return document
