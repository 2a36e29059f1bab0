"""Events of a job as JSON pages and as server-sent events."""

import json
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio import Redis
from sse_starlette import ServerSentEvent

from services.router.jobs.state import FINISHED
from services.router.jobs.store import JobStore
from troupe.streams.events import EventLog, StoredEvent

_BLOCK_S = 2.0


async def events_page(
    redis: Redis, job_id: str, after: str, *, limit: int, wait_s: float
) -> dict[str, Any]:
    """Up to ``limit`` events after the place ``after``, and the place to go on from."""
    log = EventLog(redis, job_id, source="router")
    found = await log.read(after, count=limit, block_s=wait_s)
    return {
        "events": [{"id": stored.id, **_document(stored)} for stored in found],
        "next": found[-1].id if found else after,
    }


async def events_stream(
    redis: Redis, store: JobStore, job_id: str, after: str
) -> AsyncIterator[ServerSentEvent]:
    """Events as they happen; ends when the job is over and all was sent."""
    log = EventLog(redis, job_id, source="router")
    while True:
        record = await store.find(job_id)
        is_over = record is None or record.state in FINISHED
        found = await log.read(after, count=100, block_s=0.0 if is_over else _BLOCK_S)
        for stored in found:
            after = stored.id
            data = json.dumps(_document(stored), separators=(",", ":"))
            yield ServerSentEvent(id=stored.id, event=stored.event.type, data=data)
        if is_over and not found:
            return


def _document(stored: StoredEvent) -> dict[str, Any]:
    event = stored.event
    return {
        "type": event.type,
        "occurred_at": event.occurred_at,
        "source": event.source,
        "data": json.loads(event.data_json or "{}"),
    }
