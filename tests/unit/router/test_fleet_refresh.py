"""How often a fleet reads the membership, and what its replicas show of themselves."""

import asyncio
from typing import Any

import pytest
from fleet_parts import SPEC

from troupe.api.router.v1 import router_pb2
from troupe.errors import UnavailableError
from troupe_router.members.store import Member
from troupe_router.play.routing.failover import Pauses
from troupe_router.play.routing.fleet import Fleet, UnlessClosed


class Members:
    """A membership that counts its readers."""

    def __init__(self, *replicas: router_pb2.Replica) -> None:
        self.replicas = list(replicas)
        self.looks = 0

    async def of_job(self, job_id: str) -> list[Member]:
        self.looks += 1
        await asyncio.sleep(0)
        return [Member(replica, job_id, ("p",)) for replica in self.replicas]


def rollout(name: str, *versions: int, seen_at: float = 1.0) -> router_pb2.Replica:
    policy = router_pb2.ReplicaPolicy(policy="p", loaded_versions=versions)
    return router_pb2.Replica(
        replica_id=name,
        kind=router_pb2.REPLICA_KIND_ROLLOUT,
        address="127.0.0.1:1",
        incarnation="1",
        policies=[policy],
        is_serving=True,
        seen_at=seen_at,
    )


def fleet_of(members: Any) -> Fleet:
    return Fleet("demo-1", SPEC, members)


async def test_refresh_when_thousands_ask_at_once_then_the_members_are_read_once() -> None:
    members = Members(rollout("a", 3))
    fleet = fleet_of(members)
    await asyncio.gather(*(fleet.refresh() for _ in range(2000)))
    assert members.looks == 1
    assert [connection.replica_id for connection in fleet.rollouts()] == ["a"]
    await fleet.refresh()
    assert members.looks == 2
    await fleet.close()


async def test_refresh_when_a_look_is_under_way_then_waits_for_one_that_sees_everything() -> None:
    members = Members(rollout("a", 3))
    fleet = fleet_of(members)
    first = asyncio.create_task(fleet.refresh())
    while not members.looks:  # noqa: ASYNC110 - the look tells nobody
        await asyncio.sleep(0)
    members.replicas = []  # after the first look began
    await asyncio.gather(*(fleet.refresh() for _ in range(100)))
    assert members.looks == 2
    assert not fleet.rollouts()
    await first
    await fleet.close()


async def test_refresh_when_a_replica_left_then_only_it_is_gone() -> None:
    env = router_pb2.Replica(
        replica_id="e", kind=router_pb2.REPLICA_KIND_ENV, address="127.0.0.1:1", is_serving=True
    )
    members = Members(rollout("a", 3), rollout("b", 3), env)
    fleet = fleet_of(members)
    await fleet.refresh()
    del members.replicas[0]
    await fleet.refresh()
    assert [connection.replica_id for connection in fleet.rollouts()] == ["b"]
    assert [connection.replica_id for connection in fleet.envs()] == ["e"]
    await fleet.close()
    assert not fleet.rollouts() and not fleet.envs()


async def test_candidate_when_anything_changes_then_it_is_shown_at_once() -> None:
    members = Members(rollout("a", 3))
    fleet = fleet_of(members)
    await fleet.refresh()
    [connection] = fleet.rollouts()
    first = connection.candidate(0.5, 8)
    assert connection.candidate(0.5, 8) is first
    assert first.holds("p", 3) and not first.holds("p", 4)
    assert connection.candidate(0.25, 8).matched == 0.25
    connection.num_in_flight = 8
    assert not connection.candidate(0.25, 8).has_room(1)
    assert connection.candidate(0.25, 9).has_room(1)
    connection.failed()
    assert connection.candidate().is_suspect
    connection.answered()
    assert not connection.candidate().is_suspect
    members.replicas = [rollout("a", 4, seen_at=2.0)]
    await fleet.refresh()
    assert connection.candidate().holds("p", 4)
    members.replicas[0].is_serving = False
    await fleet.refresh()
    assert not connection.candidate().holds("p", 4)
    await fleet.close()


async def test_pauses_when_thousands_found_nobody_then_each_looks_again_more_seldom() -> None:
    pauses = Pauses()
    assert pauses.at_least_s(0.5) == 0.5
    pausing = [asyncio.create_task(pauses.pause(600.0)) for _ in range(5000)]
    await asyncio.sleep(0)
    assert pauses.at_least_s(0.5) == 5.0  # 5000 callers, 1000 looks a second together
    assert pauses.at_least_s(8.0) == 8.0
    for task in pausing:
        task.cancel()
    await asyncio.gather(*pausing, return_exceptions=True)
    assert pauses.at_least_s(0.5) == 0.5


async def test_probe_when_a_replica_left_before_it_was_asked_then_nothing_is_known_of_it() -> None:
    fleet = fleet_of(Members(rollout("a", 3)))
    await fleet.refresh()
    [connection] = fleet.rollouts()
    await connection.client.close()
    await fleet.probe()
    assert connection.candidate().holds("p", 3)
    left = "replica a left before it was asked"
    with pytest.raises(UnavailableError, match=left), UnlessClosed(connection):
        await connection.client.status()  # type: ignore[union-attr]
    await fleet.close()
