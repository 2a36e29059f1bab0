"""Reads request bodies within a bound."""

from starlette.requests import Request

from services.router.rest.problems import TooLargeError


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body; raises TooLargeError (413) as soon as it is longer than ``max_bytes``."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise TooLargeError(
                f"the body is larger than {max_bytes} bytes; a job spec is a few kilobytes"
            )
    return bytes(body)
