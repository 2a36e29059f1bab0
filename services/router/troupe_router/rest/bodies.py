"""Reads request bodies within a bound of size and of time."""

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from troupe.clients.rest.errors import MediaTypeError, SlowBodyError, TooLargeError
from troupe.spec import Issue, SpecInvalidError
from troupe.spec.issues import pointer_of

_READ = re.compile(r"(application|text)/([\w.-]+\+)?(json|(x-)?yaml)")
BODY_S = 20.0
BODY_BYTES_PER_S = 4096
"""A body has ``BODY_S``, and a second more for so many bytes that are there."""
_ARCHIVES = ("application/x-tar", "application/octet-stream")
_M = TypeVar("_M", bound=BaseModel)


async def read_body(
    request: Request, max_bytes: int, hint: str = "a job spec is a few kilobytes"
) -> bytes:
    """The body of JSON or YAML.

    Raises TooLargeError (413) as soon as it is longer than ``max_bytes``, and MediaTypeError (415)
    for a body of another kind: pages of any site may send forms and plain text.
    """
    content_type = request.headers.get("content-type", "application/json")

    def check(body: bytearray) -> None:
        if body and not _READ.fullmatch(content_type.partition(";")[0].strip().lower()):
            raise MediaTypeError(
                f"a body of the media type {content_type[:100]!r} is not read; send JSON with "
                "Content-Type: application/json, or a job spec as application/yaml"
            )
        if len(body) > max_bytes:
            raise TooLargeError(f"the body is larger than {max_bytes} bytes; {hint}")

    return await _checked_body(request, check)


async def read_archive(request: Request, max_bytes: int) -> bytes:
    """The body of a tar archive; raises TooLargeError (413) and MediaTypeError (415)."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() not in _ARCHIVES:
        raise MediaTypeError(
            f"a body of the media type {content_type[:100]!r} is not read; send a bundle's archive "
            "with Content-Type: application/x-tar"
        )

    def check(body: bytearray) -> None:
        if len(body) > max_bytes:
            raise TooLargeError(
                f"the archive is larger than {max_bytes} bytes; leave out what the job does not "
                "need, or have the operator raise TROUPE_ROUTER_BUNDLE_BYTES"
            )

    return await _checked_body(request, check)


async def read_model(request: Request, model: type[_M], max_bytes: int) -> _M:
    """The JSON body as a ``model``; raises InvalidArgumentError with a pointer for each fault."""
    body = await read_body(request, max_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        issues = [Issue(pointer_of(e["loc"]), str(e["msg"])) for e in error.errors()]
        raise SpecInvalidError(issues, source="request body") from error


async def _checked_body(request: Request, check: Callable[[bytearray], None]) -> bytes:
    """The body; ``check`` sees what is there after each part of it. Raises SlowBodyError (408)."""
    body = bytearray()
    begun = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(BODY_S) as limit:
            async for chunk in request.stream():
                body += chunk
                check(body)
                limit.reschedule(begun + BODY_S + len(body) / BODY_BYTES_PER_S)
    except TimeoutError as error:
        raise SlowBodyError(
            f"{len(body)} bytes of the body came, and the rest is missing; send it at "
            f"{BODY_BYTES_PER_S} bytes a second at least"
        ) from error
    return bytes(body)
