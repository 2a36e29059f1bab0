"""The events of a job, as a bounded stream for people and trackers.

Owns the events stream: old events are trimmed, and no writer waits for a reader. Never a source of
truth.
"""

import json
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from troupe.api.records.v1.records_pb2 import Event
from troupe.errors import InvalidArgumentError
from troupe.finite import finite_only
from troupe.runtime.streams import keys
from troupe.runtime.streams.redis import MAX_BLOCK_S, WHEN_FULL, redis_errors
from troupe.runtime.streams.stream import FIELD
from troupe.runtime.streams.versions import RECORD_VERSION, check_version

_EMIT = f"""{WHEN_FULL}
if KEYS[3] and redis.call('EXISTS', KEYS[3]) == 0 then return false end
if redis.call('ZADD', KEYS[2], 'NX', ARGV[1], ARGV[2]) == 0 then return false end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -tonumber(ARGV[3]) - 1)
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*',
                  'v', '{RECORD_VERSION}', 'p', ARGV[4])
"""

_RESTORE = f"""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for i = 1, #ARGV, 4 do
  redis.call('XADD', KEYS[1], ARGV[i], 'v', '{RECORD_VERSION}', 'p', ARGV[i + 3])
  redis.call('ZADD', KEYS[2], 'NX', ARGV[i + 1], ARGV[i + 2])
end
return 1
"""


def place_of(event_id: str) -> tuple[int, int]:
    """The id of an event as numbers, which grow from event to event."""
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number or 0)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and its place in the stream (``after`` of the next read)."""

    id: str
    event: Event

    @property
    def place(self) -> tuple[int, int]:
        """See ``place_of``."""
        return place_of(self.id)


class EventLog:
    """Writes the events of one job, from one ``source``."""

    def __init__(self, redis: Redis, job_id: str, *, source: str, max_length: int = 10_000) -> None:
        self._redis = redis
        self._job_id = job_id
        self._source = source
        self._max_length = max_length
        self._emit = redis.register_script(_EMIT)

    async def emit(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        event_id: str | None = None,
        needs_record: bool = False,
    ) -> None:
        """Append one event; a second one with the same ``event_id`` is ignored.

        ``needs_record``: so is one of a job that has been deleted, whose events would never go.
        """
        event = Event(
            job_id=self._job_id,
            type=type,
            occurred_at=time.time(),
            source=self._source,
            data_json=json.dumps(finite_only(data), separators=(",", ":")),
            event_id=event_id or uuid.uuid4().hex,
        )
        with redis_errors(f"event {type} of job {self._job_id}"):
            await self._emit(
                keys=[
                    keys.events(self._job_id),
                    keys.event_ids(self._job_id),
                    *([keys.job(self._job_id)] if needs_record else []),
                ],
                args=[
                    event.occurred_at,
                    event.event_id,
                    self._max_length,
                    event.SerializeToString(),
                ],
            )

    async def readmit(self, event_ids: Collection[str]) -> None:
        """Let events with these ids be emitted again; what is in the stream stays."""
        if event_ids:
            with redis_errors(f"event ids of job {self._job_id}"):
                await self._redis.zrem(keys.event_ids(self._job_id), *event_ids)

    async def restore(self, events: Sequence[StoredEvent]) -> None:
        """Put back events that Redis lost, at their places; nothing when it holds some already.

        ``events`` are in the order of their ids; the oldest of too many are left out.
        """
        args: list[str | float | bytes] = []
        for stored in events[-self._max_length :]:
            event = stored.event
            args += [stored.id, event.occurred_at, event.event_id, event.SerializeToString()]
        if args:
            with redis_errors(f"earlier events of job {self._job_id}"):
                restore = self._redis.register_script(_RESTORE)
                await restore(
                    keys=[keys.events(self._job_id), keys.event_ids(self._job_id)], args=args
                )

    async def read(
        self, after: str = "0", *, count: int = 100, block_s: float = 0.0
    ) -> list[StoredEvent]:
        """Events after the place ``after``; waits for the first one up to ``block_s``.

        Raises:
            InvalidArgumentError: ``after`` is not an event's place.
        """
        if not re.fullmatch(r"\d{1,19}(-\d{1,19})?", after):
            raise InvalidArgumentError(
                f"{after!r} is not the id of an event; give 0 or an id that was read before."
            )
        key = keys.events(self._job_id)
        deadline = time.monotonic() + block_s
        while True:
            left_s = deadline - time.monotonic()
            block_ms = max(1, round(min(left_s, MAX_BLOCK_S) * 1000)) if left_s > 0 else None
            with redis_errors(f"events of job {self._job_id}"):
                streams: Any = await self._redis.xread({key: after}, count=count, block=block_ms)
            if streams or block_ms is None:
                entries = streams[0][1] if streams else []
                return [self._stored(entry_id.decode(), fields) for entry_id, fields in entries]

    def _stored(self, entry_id: str, fields: Mapping[bytes, bytes]) -> StoredEvent:
        check_version(fields, f"event {entry_id} of job '{self._job_id}'")
        return StoredEvent(entry_id, Event.FromString(fields[FIELD]))
