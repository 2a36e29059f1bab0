"""Reads request bodies within a bound."""

import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

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
    content_type = request.headers.get("content-type", "application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if body and not _READ.fullmatch(content_type.partition(";")[0].strip().lower()):
            raise MediaTypeError(
                f"a body of the media type {content_type[:100]!r} is not read; send JSON with "
                "Content-Type: application/json, or a job spec as application/yaml"
            )
        if len(body) > max_bytes:
            raise TooLargeError(
                f"the body is larger than {max_bytes} bytes; a job spec is a few kilobytes"
            )
    return bytes(body)


async def read_archive(request: Request, max_bytes: int) -> bytes:
    """The body of a tar archive; raises TooLargeError (413) and MediaTypeError (415)."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/x-tar":
        raise MediaTypeError(
            f"a body of the media type {content_type[:100]!r} is not read; send a bundle's archive "
            "with Content-Type: application/x-tar"
        )
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise TooLargeError(
                f"the archive is larger than {max_bytes} bytes; leave out what the job does not "
                "need, or have the operator raise TROUPE_ROUTER_BUNDLE_BYTES"
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
