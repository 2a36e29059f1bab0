"""Routes of events: JSON pages, and a stream (SSE) that ends with the job."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from redis.asyncio import Redis
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from troupe.clients.rest.models import EventPage
from troupe.errors import InvalidArgumentError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.store import JobStore
from troupe_router.rest.access import CALLER
from troupe_router.rest.api_keys import Caller, KeyStore
from troupe_router.rest.bodies import answer
from troupe_router.rest.event_fanout import EventFanout, document_of
from troupe_router.rest.openapi import EVENTS, JobId, shows
from troupe_router.rest.route import Route, routed

_log = get_logger(__name__)
_PING_S = 10
_SEND_S = 30.0
"""A client that takes nothing for so long is let go."""
_LARGEST = 2**64
_ABOUT = (
    "JSON gives a page. `Accept: text/event-stream` gives server-sent events that go on "
    "until the job is over; `Last-Event-ID` (or `after`) says where to begin."
)


class Stream(EventSourceResponse):
    """An event stream whose client may stop reading at any time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end; a client that does not read is cut off, which is no error."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            _log.info("events.client_does_not_read", path=scope["path"])


class EventRoutes:
    """Events of one job."""

    def __init__(self, redis: Redis, store: JobStore, fanout: EventFanout, keys: KeyStore) -> None:
        self._redis = redis
        self._keys = keys
        self._store = store
        self._fanout = fanout

    async def events(
        self,
        request: Request,
        job_id: JobId,
        after: str = "0",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        wait_s: Annotated[float, Query(ge=0.0, le=30.0)] = 0.0,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        if "text/event-stream" in request.headers.get("accept", ""):
            if last_event_id:
                after = _known(last_event_id, "/header/last-event-id")
            return await self._stream(request, job_id, _known(after))
        await self._store.get(job_id)
        log = EventLog(self._redis, job_id, source="router")
        found = await log.read(_known(after), count=limit, block_s=wait_s)
        page = [{"id": stored.id, **document_of(stored)} for stored in found]
        return answer(request, {"events": page, "next": found[-1].id if found else after})

    async def _stream(self, request: Request, job_id: str, place: str) -> Response:
        caller: Caller = request.scope[CALLER]
        name = caller.name or (request.client.host if request.client else "")
        self._fanout.check_room(name)
        async with self._fanout.joining:
            await self._store.get(job_id)
        chunks = _while_known(
            self._fanout.follow(job_id, place, name), lambda: self._keys.still_knows(caller)
        )
        return Stream(chunks, ping=_PING_S, send_timeout=_SEND_S)


def event_routes(redis: Redis, store: JobStore, fanout: EventFanout, keys: KeyStore) -> APIRouter:
    """Routes of a job's events."""
    return routed(
        "/v1/jobs/{job_id}/events",
        "events",
        Route(
            "",
            EventRoutes(redis, store, fanout, keys).events,
            "What happened: a page, or a stream",
            shows(EventPage, EVENTS, stream=True),
            (404, 422, 429),
            description=_ABOUT,
        ),
    )


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


def _known(place: str, pointer: str = "/query/after") -> str:
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
