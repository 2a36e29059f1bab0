"""When a member heartbeats."""

import asyncio
from typing import cast

import pytest

from troupe.api.router.v1.router_pb2 import Assignment, Replica, SendHeartbeatResponse
from troupe.clients.router import RouterClient
from troupe.runtime.serving.membership import Membership, ShouldExit

DEADLINE_S = 60.0


class Router:
    """Counts, and sends the member home after ``num_beats``."""

    def __init__(self, num_beats: int) -> None:
        self.left = num_beats
        self.seen: asyncio.Queue[int] = asyncio.Queue()

    async def register(self, replica: Replica, *, timeout_s: float) -> Assignment:
        return (await self.heartbeat(replica, timeout_s=timeout_s)).assignment

    async def heartbeat(self, replica: Replica, *, timeout_s: float) -> SendHeartbeatResponse:
        self.seen.put_nowait(replica.num_in_flight)
        self.left -= 1
        assignment = Assignment(job_id="j")
        return SendHeartbeatResponse(assignment=assignment, should_exit=self.left < 0)


async def test_heartbeat_when_something_changed_then_is_sent_now() -> None:
    router = Router(num_beats=2)
    state = Replica(replica_id="r", num_in_flight=1)
    # Within the test no second heartbeat is due.
    member = Membership(cast("RouterClient", router), lambda: state, interval_s=3600.0)
    running = asyncio.ensure_future(member.run())
    async with asyncio.timeout(DEADLINE_S):
        assert await router.seen.get() == 1
        state.num_in_flight = 7
        member.tell()
        assert await router.seen.get() == 7
        assert not running.done()
        member.tell()
        with pytest.raises(ShouldExit):
            await running
    assert router.seen.qsize() == 1


async def test_heartbeat_when_nothing_changed_then_is_sent_at_each_interval() -> None:
    router = Router(num_beats=3)
    member = Membership(cast("RouterClient", router), Replica, interval_s=0.01)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ShouldExit):
            await member.run()
    assert router.seen.qsize() == 4
