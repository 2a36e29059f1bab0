"""The file ``events.jsonl`` of a job that rests: its events, which only Redis had while it ran.

Owns the file's form and limits. Places and ids stay those of Redis, so what a client read up to
stays valid.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from troupe.api.records.v1.records_pb2 import Event
from troupe.durable import replace_file
from troupe.runtime.streams.events import EventLog, StoredEvent
from troupe_router.jobs.job_file import BrokenFolderError, read_bounded

EVENTS_FILE = "events.jsonl"
MAX_EVENTS_BYTES = 64 << 20
_PAGE = 1000
_PLACE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


async def keep_events(log: EventLog, run_dir: Path) -> None:
    """Write every event that Redis holds of the job; raises OSError."""
    lines: list[str] = []
    after = "0"
    while page := await log.read(after, count=_PAGE):
        lines += map(_line, page)
        after = page[-1].id
    text = "".join(lines).encode()
    if len(text) <= MAX_EVENTS_BYTES:
        await asyncio.to_thread(replace_file, run_dir / EVENTS_FILE, text)


def kept_events(run_dir: Path, job_id: str) -> list[StoredEvent]:
    """The events that ``keep_events`` wrote; none where the file is missing.

    Raises:
        BrokenFolderError: the file is not one of this form.
    """
    text = read_bounded(run_dir, EVENTS_FILE, MAX_EVENTS_BYTES)
    stored: list[StoredEvent] = []
    newest = (0, 0)
    for number, line in enumerate((text or b"").splitlines(), 1):
        try:
            event = _event(json.loads(line), job_id)
            place = _place(event.id)
            if place <= newest:
                raise ValueError("it is not after the event before it")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BrokenFolderError(f"{EVENTS_FILE} line {number}: {error}") from error
        newest = place
        stored.append(event)
    return stored


def _line(stored: StoredEvent) -> str:
    event = stored.event
    document = {
        "id": stored.id,
        "type": event.type,
        "occurred_at": event.occurred_at,
        "source": event.source,
        "event_id": event.event_id,
        "data": event.data_json,
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _event(document: Any, job_id: str) -> StoredEvent:
    data = document["data"]
    if not isinstance(json.loads(data), dict):
        raise ValueError("its data is not an object")
    event = Event(
        job_id=job_id,
        type=document["type"],
        occurred_at=document["occurred_at"],
        source=document["source"],
        event_id=document["event_id"],
        data_json=data,
    )
    return StoredEvent(document["id"], event)


def _place(event_id: str) -> tuple[int, int]:
    found = _PLACE.fullmatch(event_id)
    if found is None or int(found[1]) >= 2**63 or int(found[2]) >= 2**63:
        raise ValueError("its id is not one of Redis")
    return int(found[1]), int(found[2])
