"""Routes of events: JSON pages, and a stream (SSE) that ends with the job."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from troupe.clients.rest.models.events import EventPage, EventPageQuery
from troupe.errors import InvalidArgumentError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.rest.access.api_keys import Caller
from troupe_router.rest.event_fanout import event_document
from troupe_router.rest.openapi import EVERY, problems, text_or
from troupe_router.rest.parts import CountedAs, JobId, Parts, RestParts, WhoAsks
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(
    prefix="/v1/jobs/{job_id}/events", tags=["events"], route_class=StrictRoute, responses=EVERY
)
_log = get_logger(__name__)
_PING_S = 10
_SEND_S = 30.0
"""A client that takes nothing for so long is let go."""
_LARGEST = 2**64


class Stream(EventSourceResponse):
    """An event stream whose client may stop reading at any time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end; a client that does not read is cut off, which is no error."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            _log.info("events.client_does_not_read", path=scope["path"])


@routes.get(
    "",
    response_model=EventPage,
    responses={**problems(404), **text_or("text/event-stream")},
)
async def events(
    request: Request,
    parts: Parts,
    caller: WhoAsks,
    counted_as: CountedAs,
    job_id: JobId,
    query: Annotated[EventPageQuery, Query()],
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventPage | Stream:
    """What happened: a page, or a stream.

    JSON gives a page. `Accept: text/event-stream` gives server-sent events that go on until the
    job is over; `Last-Event-ID` (or `after`) says where to begin.
    """
    after = query.after
    if "text/event-stream" in request.headers.get("accept", ""):
        if last_event_id:
            after = _checked(last_event_id, "/header/last-event-id")
        return await _stream(parts, caller, counted_as, job_id, _checked(after))
    await parts.store.get(job_id)
    log = EventLog(parts.redis, job_id, source="router")
    stored = await log.read(_checked(after), count=query.limit)
    if not stored and query.wait_s:
        await parts.fanout.wait(job_id, after, counted_as, query.wait_s)
        stored = await log.read(after, count=query.limit)
    return EventPage(
        events=[event_document(event) for event in stored], next=stored[-1].id if stored else after
    )


async def _stream(
    parts: RestParts, caller: Caller, counted_as: str, job_id: str, place: str
) -> Stream:
    parts.fanout.check_room(counted_as)
    async with parts.fanout.joining:
        await parts.store.get(job_id)
    chunks = _while_known(
        parts.fanout.follow(job_id, place, counted_as), lambda: parts.keys.still_knows(caller)
    )
    return Stream(chunks, ping=_PING_S, send_timeout=_SEND_S)


async def _while_known(
    events: AsyncGenerator[bytes], is_known: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """``events`` until the caller's key is taken away; that is looked at with each ping too."""
    async with aclosing(events) as chunks:
        coming: asyncio.Future[bytes | None] | None = None
        try:
            while is_known():
                coming = coming or asyncio.ensure_future(anext(chunks, None))
                await asyncio.wait({coming}, timeout=_PING_S)
                if not coming.done() or not is_known():
                    continue
                chunk, coming = coming.result(), None
                if chunk is None:
                    return
                yield chunk
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


def _checked(place: str, pointer: str = "/query/after") -> str:
    """``place``, when Redis can have such an id; raises InvalidArgumentError."""
    parts = place.split("-")
    # Python reads no number of more than 4300 digits.
    if len(place) > 2 * 20 + 1 or len(parts) > 2 or not all(map(_is_number, parts)):
        raise InvalidArgumentError(
            f"{place[:80]!r} is not the id of an event; give 0 or an id that was read before",
            pointer=pointer,
        )
    return place


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and int(part) < _LARGEST
