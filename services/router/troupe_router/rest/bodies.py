"""Reads request bodies within a bound, and writes JSON answers that a client may keep."""

import hashlib
import json
import math
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from troupe.clients.rest.errors import MediaTypeError, TooLargeError
from troupe.spec import Issue, SpecInvalidError
from troupe.spec.issues import pointer_of

_READ = re.compile(r"(application|text)/([\w.-]+\+)?(json|(x-)?yaml)")
_M = TypeVar("_M", bound=BaseModel)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body of JSON or YAML.

    Raises TooLargeError (413) as soon as it is longer than ``max_bytes``, and MediaTypeError (415)
    for a body of another kind: pages of any site may send forms and plain text.
    """
    given = request.headers.get("content-type", "application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if body and not _READ.fullmatch(given.partition(";")[0].strip().lower()):
            raise MediaTypeError(
                f"a body of the media type {given[:100]!r} is not read; send JSON with "
                "Content-Type: application/json, or a job spec as application/yaml"
            )
        if len(body) > max_bytes:
            raise TooLargeError(
                f"the body is larger than {max_bytes} bytes; a job spec is a few kilobytes"
            )
    return bytes(body)


async def read_model(request: Request, model: type[_M], max_bytes: int) -> _M:
    """The JSON body as a ``model``; raises InvalidArgumentError with a pointer for each fault."""
    body = await read_body(request, max_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        issues = [Issue(pointer_of(e["loc"]), str(e["msg"])) for e in error.errors()]
        raise SpecInvalidError(issues, source="request body") from error


def answer(request: Request, document: Any) -> Response:
    """``document`` as JSON with an ETag; 304 without a body when the client has it already."""
    body = _encode(document)
    tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _encode(document: Any) -> bytes:
    """JSON proper: what is no number there (NaN, infinity) is null."""
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), separators=(",", ":"), allow_nan=False)
    return text.encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
