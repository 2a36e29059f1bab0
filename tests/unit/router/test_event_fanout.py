"""What a follower of a job's events gets as the job ends."""

from typing import Any, cast

import pytest

from troupe.api.records.v1.records_pb2 import Event
from troupe.runtime.streams.events import StoredEvent
from troupe_router.rest import event_fanout
from troupe_router.rest.event_fanout import EventFanout

END = StoredEvent("2-0", Event(type="job.state", data_json='{"state": "succeeded"}'))


class Store:
    """A record that is over from its second look on."""

    def __init__(self) -> None:
        self.num_looks = 0

    async def state(self, job_id: str) -> str:
        self.num_looks += 1
        return "running" if self.num_looks == 1 else "succeeded"


class Redis:
    async def xrevrange(self, *of: Any, **more: Any) -> list[Any]:
        return []


async def test_follower_when_the_record_ends_before_the_event_then_it_gets_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[list[StoredEvent]] = [[], [], [END], []]

    class Log:
        """Gets its last event after the first read of a record that is over."""

        def __init__(self, *of: Any, **more: Any) -> None:
            pass

        async def read(self, after: str, **more: Any) -> list[StoredEvent]:
            return reads.pop(0)

    monkeypatch.setattr(event_fanout, "EventLog", Log)
    monkeypatch.setattr(event_fanout, "_PAUSE_S", 0.0)
    redis = cast("Any", Redis())
    fanout = EventFanout(redis, cast("Any", Store()), blocking=redis, max_streams=1)
    chunks = [chunk async for chunk in fanout.follow("demo-1", "0")]
    assert b"".join(chunks).count(b"succeeded") == 1
    assert reads == []
