"""One leader among routers, and what it removes, on the fake cluster."""

from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from kube_fake import FakeCluster
from kube_world import ClusterWorld, replica, until
from kubernetes.aio import client

from troupe_router.cluster.garbage_collector import GarbageCollector
from troupe_router.cluster.leader import Leader


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterWorld]:
    async with FakeCluster() as fake:
        made = ClusterWorld(client.Configuration(host=fake.url), "troupe", plays=True)
        await made.install()
        async with made.running():
            yield made


async def test_leader_when_another_holds_the_lease_then_waits_until_it_is_given_back(
    cluster: ClusterWorld,
) -> None:
    one = Leader(cluster.api, "t-router", "one", duration_s=60.0)
    other = Leader(cluster.api, "t-router", "other", duration_s=60.0)
    assert await one.lead()
    assert not await other.lead()
    assert await one.lead()
    await one.release()
    assert await other.lead()
    assert not await one.lead()


async def test_leader_when_it_renews_no_more_then_another_takes_over_after_the_duration(
    cluster: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Leader(cluster.api, "t-router", "one", duration_s=15.0)
    other = Leader(cluster.api, "t-router", "other", duration_s=15.0)
    now = 1000.0
    # The leader's clock alone: the event loop has the same function and would stand still.
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("troupe_router.cluster.leader.time", clock)
    assert await one.lead()
    assert not await other.lead()
    now = 1014.0
    assert not await other.lead()
    now = 1016.0
    assert await other.lead()
    assert not await one.lead()


async def test_sweeper_when_a_job_is_over_then_removes_its_objects_and_no_others(
    cluster: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, wanted = cluster.launcher(), [replica("env-0")]
    for owner in ("over", "goes-on"):
        await until(launcher, wanted, lambda s: s["env-0"].state == "running", owner=owner)

    async def unfinished() -> set[str]:
        return {"goes-on"}

    leader = Leader(cluster.api, "t-router", "one")
    sweeper = GarbageCollector(launcher, leader, unfinished, patience_s=60.0, grace_s=1.0)
    assert await sweeper.sweep() == []
    monkeypatch.setattr(sweeper, "_patience_s", 0.0)
    assert await sweeper.sweep() == ["over"]
    assert await launcher.owners() == ["goes-on"]
    left = await cluster.left_over()
    assert left and all("goes-on" in name for name in left)
