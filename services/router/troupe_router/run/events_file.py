"""The file ``events.jsonl`` of a job that rests: its events, which only Redis had while it ran.

Owns the file's form and limits. Places and ids stay those of Redis, so what a client read up to
stays valid.
"""

import asyncio
import json
import re
from collections import deque
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from troupe.api.records.v1.records_pb2 import Event
from troupe.durable import replace_file
from troupe.runtime.streams.events import EventLog, StoredEvent
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.job_file import BrokenFolderError, read_bounded

_log = get_logger(__name__)
EVENTS_FILE = "events.jsonl"
MAX_EVENTS_BYTES = 64 << 20
_PAGE = 1000
_MAX_DEPTH = 32
_PLACE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class _KeptEvent(BaseModel):
    """A line of the file. ``data`` is the event's data as JSON."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    id: str
    type: Annotated[str, Field(max_length=200)]
    occurred_at: Annotated[float, Field(ge=0, lt=2**53, allow_inf_nan=False)]
    source: Annotated[str, Field(max_length=200)]
    event_id: Annotated[str, Field(max_length=2000)]
    data: str


async def keep_events(log: EventLog, run_dir: Path) -> None:
    """Write the events that Redis holds of the job, the newest that fit; raises OSError."""
    lines: deque[bytes] = deque()
    size_bytes, num_left_out, after = 0, 0, "0"
    while page := await log.read(after, count=_PAGE):
        after = page[-1].id
        for line in map(_line, page):
            lines.append(line)
            size_bytes += len(line)
            while size_bytes > MAX_EVENTS_BYTES:
                size_bytes -= len(lines.popleft())
                num_left_out += 1
    if num_left_out:
        _log.warning("events.left_out", run_dir=str(run_dir), num_oldest=num_left_out)
    await asyncio.to_thread(replace_file, run_dir / EVENTS_FILE, b"".join(lines))


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
            event = _event(line, job_id)
            place = _place(event.id)
            if place <= newest:
                raise ValueError("it is not after the event before it")
        except (ValueError, RecursionError) as error:
            raise BrokenFolderError(f"{EVENTS_FILE} line {number}: {_reason(error)}") from error
        newest = place
        stored.append(event)
    return stored


def _line(stored: StoredEvent) -> bytes:
    event = stored.event
    document = {
        "id": stored.id,
        "type": event.type,
        "occurred_at": event.occurred_at,
        "source": event.source,
        "event_id": event.event_id,
        "data": event.data_json,
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _event(line: bytes, job_id: str) -> StoredEvent:
    kept = _KeptEvent.model_validate_json(line)
    _check_data(json.loads(kept.data, parse_constant=_refuse))
    event = Event(
        job_id=job_id,
        type=kept.type,
        occurred_at=kept.occurred_at,
        source=kept.source,
        event_id=kept.event_id,
        data_json=kept.data,
    )
    return StoredEvent(kept.id, event)


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'/'.join(map(str, first['loc']))}: {first['msg']}"


def _check_data(data: Any) -> None:
    """Refuse what no answer of REST could hold; never recursive, since depth is what it bounds."""
    if not isinstance(data, dict):
        raise ValueError("its data is not an object")
    level: list[Any] = [data]
    for _ in range(_MAX_DEPTH):
        if any(isinstance(value, float) and not isfinite(value) for value in level):
            raise ValueError("its data holds a number that is not finite")
        inner = [
            value.values() if isinstance(value, dict) else value
            for value in level
            if isinstance(value, dict | list)
        ]
        level = [value for values in inner for value in values]
        if not level:
            return
    raise ValueError(f"its data is nested more than {_MAX_DEPTH} deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"its data holds {constant}, which is no JSON")


def _place(event_id: str) -> tuple[int, int]:
    found = _PLACE.fullmatch(event_id)
    if found is None or int(found[1]) >= 2**63 or int(found[2]) >= 2**63:
        raise ValueError("its id is not one of Redis")
    return int(found[1]), int(found[2])
