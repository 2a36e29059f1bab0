"""Events of jobs for any number of followers: one reader per job, however many clients.

A follower holds only its place: new events come from a short shared tail, older ones from
Redis. So a client that never reads costs a connection, and memory stays flat.
"""

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from troupe.aio import cancel_all
from troupe.clients.rest.models.events import EventDocument
from troupe.errors import OverloadedError, TroupeError, UnavailableError
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog, StoredEvent, place_of
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.state import FINISHED
from troupe_router.jobs.store import JobStore

_log = get_logger(__name__)
_BLOCK_S = 2.0
_PAUSE_S = 1.0
_TAIL = 256
_PAGE = 100
_JOINING = 32
"""Followers that may ask Redis at once: when a thousand reconnect together, the others wait."""
Place = tuple[int, int]


@dataclass(slots=True)
class _Feed:
    """The newest events of one job: all those after ``base`` are in ``tail``, encoded."""

    base: Place
    tail: deque[tuple[Place, bytes]] = field(default_factory=deque[tuple[Place, bytes]])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    followers: int = 0
    reader: asyncio.Task[None] | None = None

    def add(self, place: Place, chunk: bytes) -> None:
        self.tail.append((place, chunk))
        if len(self.tail) > _TAIL:
            self.base = self.tail.popleft()[0]

    def after(self, place: Place) -> tuple[Place, bytes]:
        """What is new for a follower at ``place`` (not before ``base``), and its new place."""
        news = [(at, chunk) for at, chunk in self.tail if at > place]
        return (news[-1][0], b"".join(chunk for _, chunk in news)) if news else (place, b"")

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class EventFanout:
    """Feeds by job.

    ``max_streams`` bounds the followers of all jobs together, ``max_of_caller`` those of one key or
    address. ``blocking`` is the client of the readers, which each hold a connection while they wait
    for an event: one of its own, so that none is missing elsewhere.
    """

    def __init__(
        self,
        redis: Redis,
        store: JobStore,
        *,
        blocking: Redis,
        max_streams: int,
        max_of_caller: int | None = None,
    ) -> None:
        self._redis = redis
        self._blocking = blocking
        self._store = store
        self._max_streams = max_streams
        self._max_of_caller = max_of_caller or max_streams
        self._of_caller: Counter[str] = Counter()
        self._feeds: dict[str, _Feed] = {}
        self._closed = asyncio.Event()
        self.joining = asyncio.Semaphore(_JOINING)
        self.num_followers = 0

    async def close(self) -> None:
        """End the readers and let every follower go."""
        self._closed.set()
        feeds = list(self._feeds.values())
        for feed in feeds:
            feed.is_over = True
            feed.wake()
        await cancel_all(*(feed.reader for feed in feeds if feed.reader))

    def check_room(self, caller: str = "") -> None:
        """Raise OverloadedError when one follower more, of this caller, is too many."""
        if self._closed.is_set():
            raise UnavailableError("this router is going down; ask again")
        if self.num_followers >= self._max_streams:
            raise OverloadedError(
                f"{self._max_streams} clients follow events or logs already; read pages without "
                "wait_s instead, or raise TROUPE_ROUTER_MAX_STREAMS"
            )
        if self._of_caller[caller] >= self._max_of_caller:
            raise OverloadedError(
                f"{self._max_of_caller} streams or long polls of this caller are open already; "
                "close some, read pages without wait_s instead, or raise "
                "TROUPE_ROUTER_MAX_STREAMS_PER_CALLER"
            )

    @contextlib.contextmanager
    def waiting(self, caller: str) -> Generator[None]:
        """Count a long poll among the followers; raises OverloadedError for one too many."""
        self.check_room(caller)
        with self._counted(caller):
            yield

    async def wait(self, job_id: str, after: str, caller: str, wait_s: float) -> None:
        """Return once there is an event after ``after``, at the latest after ``wait_s``.

        Raises OverloadedError for one follower too many.
        """
        with self.waiting(caller), contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(wait_s),
                contextlib.aclosing(self._chunks(job_id, after)) as chunks,
            ):
                async for _ in chunks:
                    return
                # The job is over; it may be resumed.
                await self._closed.wait()

    async def follow(self, job_id: str, after: str, caller: str = "") -> AsyncGenerator[bytes]:
        """Encoded events after the place ``after``, until the job is over and all was sent."""
        with self._counted(caller):
            async with contextlib.aclosing(self._chunks(job_id, after)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _chunks(self, job_id: str, after: str) -> AsyncGenerator[bytes]:
        log = EventLog(self._redis, job_id, source="router")
        place = place_of(after)
        newest = (0, 0)
        if job_id not in self._feeds:
            newest = await self._newest(job_id)
        with self._following(job_id, newest) as feed:
            while True:
                if place < feed.base and not self._closed.is_set():
                    async with self.joining:
                        events = await log.read(_id(place), count=_PAGE)
                    if events:
                        place = events[-1].place
                        yield b"".join(encode(stored) for stored in events)
                        continue
                    place = feed.base
                changed, is_over = feed.changed, feed.is_over
                place, chunk = feed.after(place)
                if chunk:
                    yield chunk
                elif is_over:
                    return
                else:
                    await changed.wait()

    @contextlib.contextmanager
    def _following(self, job_id: str, newest: Place) -> Generator[_Feed]:
        """The job's feed, with a reader while anybody follows."""
        feed = self._feeds.get(job_id)
        if feed is None or feed.is_over:
            feed = self._feeds[job_id] = _Feed(newest)
            feed.reader = asyncio.create_task(self._read(job_id, feed))
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if feed.followers == 0:
                assert feed.reader is not None
                feed.reader.cancel()
                if self._feeds.get(job_id) is feed:
                    del self._feeds[job_id]

    @contextlib.contextmanager
    def _counted(self, caller: str) -> Generator[None]:
        self.num_followers += 1
        self._of_caller[caller] += 1
        try:
            yield
        finally:
            self.num_followers -= 1
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]

    async def _read(self, job_id: str, feed: _Feed) -> None:
        log = EventLog(self._blocking, job_id, source="router")
        place, is_told, is_again = feed.base, False, False
        while not feed.is_over:
            try:
                state = await self._store.state(job_id)
                is_over = state is None or state in FINISHED
                block_s = 0.0 if is_over else _BLOCK_S
                events = await log.read(_id(place), count=_TAIL // 2, block_s=block_s)
            except (RedisError, TroupeError) as error:
                _log.warning("events.redis_is_away", job_id=job_id, error=str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            for stored in events:
                place = stored.place
                feed.add(place, encode(stored))
            if events:
                is_told, is_again = event_document(events[-1]).tells_end, False
            elif is_over and not (is_told or is_again):
                # The record says that the job is over a moment before the event does.
                is_again = True
                await asyncio.sleep(_PAUSE_S)
                continue
            feed.is_over = is_over and not events
            if events or feed.is_over:
                feed.wake()

    async def _newest(self, job_id: str) -> Place:
        """Place of the newest event."""
        entries: Any = await self._redis.xrevrange(keys.events(job_id), count=1)
        return place_of(entries[0][0].decode()) if entries else (0, 0)


def encode(stored: StoredEvent) -> bytes:
    """One event as ``text/event-stream`` bytes."""
    # Escaped: a client may take any of Unicode's line ends for the end of a line.
    document = event_document(stored).model_dump(exclude={"id"})
    data = json.dumps(document, separators=(",", ":"))
    kind = stored.event.type.replace("\n", " ").replace("\r", " ")
    return f"id: {stored.id}\r\nevent: {kind}\r\ndata: {data}\r\n\r\n".encode()


def event_document(stored: StoredEvent) -> EventDocument:
    """What REST shows of an event."""
    event = stored.event
    return EventDocument(
        id=stored.id,
        type=event.type,
        occurred_at=event.occurred_at,
        source=event.source,
        data=json.loads(event.data_json or "{}"),
    )


def _id(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
