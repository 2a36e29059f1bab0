"""One leader among routers, and what it removes, on the fake cluster."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from kube_fake import FakeCluster
from kube_world import ClusterWorld, replica, until
from kubernetes.aio import client

from troupe_router.cluster.garbage_collector import GarbageCollector
from troupe_router.cluster.launcher import KubernetesLauncher
from troupe_router.cluster.leader import Leader
from troupe_router.conduct.dry_runs import PLAY_S, START_S
from troupe_router.conduct.launching import sweep_patience_s


@dataclass
class _Clock:
    """``time`` of one module alone: with the event loop's clock, everything would stand still."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


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
    clock = _Clock()
    monkeypatch.setattr("troupe_router.cluster.leader.time", clock)
    assert await one.lead()
    assert not await other.lead()
    clock.now += 14.0
    assert not await other.lead()
    clock.now += 2.0
    assert await other.lead()
    assert not await one.lead()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr("troupe_router.cluster.garbage_collector.time", clock)
    return clock


async def sweeper_beside(
    cluster: ClusterWorld, launcher: KubernetesLauncher, *owners: str
) -> GarbageCollector:
    """A sweeper where each of ``owners`` has a pod, and the job `goes-on` alone is unfinished."""
    for owner in owners:
        await until(
            launcher, [replica("env-0")], lambda s: s["env-0"].state == "running", owner=owner
        )

    async def unfinished() -> list[str]:
        return ["goes-on"]

    leader = Leader(cluster.api, "t-router", "one")
    return GarbageCollector(launcher, leader, unfinished, patience_s=sweep_patience_s, grace_s=1.0)


async def test_sweeper_when_a_job_is_over_then_removes_its_objects_and_no_others(
    cluster: ClusterWorld, clock: _Clock
) -> None:
    launcher = cluster.launcher()
    sweeper = await sweeper_beside(cluster, launcher, "over", "goes-on")
    assert await sweeper.sweep() == []
    clock.now += 61.0
    assert await sweeper.sweep() == ["over"]
    assert await launcher.owners() == ["goes-on"]
    left = await cluster.left_over()
    assert left and all("goes-on" in name for name in left)


async def test_sweeper_when_another_router_plays_a_dry_run_then_its_worker_stays_while_one_may_take(
    cluster: ClusterWorld, clock: _Clock
) -> None:
    dry_run = "dryrun-0a1b2c3d"
    sweeper = await sweeper_beside(cluster, cluster.launcher(), dry_run)
    assert await sweeper.sweep() == []
    clock.now += START_S + PLAY_S
    assert await sweeper.sweep() == []
    clock.now += 61.0
    assert await sweeper.sweep() == [dry_run]
