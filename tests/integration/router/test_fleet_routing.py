"""Generation over real gRPC replicas: versions, failing over, replicas that come back."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from fleet_world import FleetWorld, Scripted, until
from redis.asyncio import Redis

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe_router.members.store import MemberStore


@pytest.fixture
async def world(redis: Redis) -> AsyncIterator[FleetWorld]:
    found = FleetWorld(MemberStore(redis, ttl_s=30))
    yield found
    await found.close()


async def test_generate_goes_only_to_the_replica_that_holds_the_version(world: FleetWorld) -> None:
    old, new = Scripted("old", {1}), Scripted("new", {1, 2})
    await world.start(old)
    await world.start(new)
    answers = {await world.generate(2) for _ in range(4)}
    assert answers == {"new"}
    assert old.calls == 0


async def test_generate_waits_for_a_version_that_is_being_loaded(world: FleetWorld) -> None:
    replica = Scripted("a", {1})
    await world.start(replica)
    await world.generate(1)
    waiting = asyncio.create_task(world.generate(2))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    replica.loaded = {1, 2}
    assert await waiting == "a"


async def test_generate_fails_over_to_another_replica(world: FleetWorld) -> None:
    bad = Scripted("bad", {1}, error=UnavailableError("engine is down"))
    good = Scripted("good", {1})
    await world.start(bad)
    await world.start(good)
    assert {await world.generate(1) for _ in range(6)} == {"good"}


async def test_generate_survives_a_replica_that_restarts_at_another_port(world: FleetWorld) -> None:
    first = await world.start(Scripted("a", {1}))
    assert await world.generate(1) == "a"
    await first.stop(None)
    waiting = asyncio.create_task(world.generate(1))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    await world.start(Scripted("a", {1}), life="2")
    assert await waiting == "a"


async def test_generate_without_the_version_gives_up_and_says_which(world: FleetWorld) -> None:
    await world.start(Scripted("a", {1}))
    with pytest.raises(UnavailableError, match="version 7 of policy 'p'"):
        await world.generate(7, timeout_s=0.2)


async def test_error_that_a_retry_cannot_help_is_raised_at_once(world: FleetWorld) -> None:
    replica = Scripted("a", {1}, error=InvalidArgumentError("prompt too long"))
    await world.start(replica)
    with pytest.raises(InvalidArgumentError, match="too long"):
        await world.generate(1)
    assert replica.calls == 1
    assert world.fleet.rollouts()[0].num_in_flight == 0


async def test_replica_that_keeps_failing_is_not_asked_each_time_though_it_knows_the_prompt(
    world: FleetWorld,
) -> None:
    first, second = Scripted("a", {1}), Scripted("b", {1})
    await world.start(first)
    await world.start(second)
    liked = {"a": first, "b": second}[await world.generate(1)]
    liked.error = UnavailableError("engine is down")
    before = liked.calls
    answers = {await world.generate(1) for _ in range(20)}
    assert answers == {"a", "b"} - {liked.name}
    assert liked.calls - before <= 2
    liked.error = None
    async with asyncio.timeout(30):
        other = {"a": second, "b": first}[liked.name]
        other.error = UnavailableError("now this one is")
        assert await world.generate(1) == liked.name


async def test_hung_replica_that_goes_silent_is_evicted_and_its_calls_answered_elsewhere(
    world: FleetWorld, redis: Redis
) -> None:
    hung = Scripted("hung", {1}, gate=asyncio.Event())
    await world.start(hung)
    waiting = asyncio.create_task(world.generate(1, timeout_s=30))
    await until(lambda: hung.calls == 1)
    last = world.fleet.rollouts()[0].member
    await MemberStore(redis, ttl_s=0.3).put(last)  # its last heartbeat, of a short lease
    await world.start(Scripted("good", {1}))
    async with asyncio.timeout(20):
        assert await waiting == "good"
    assert [connection.replica_id for connection in world.fleet.rollouts()] == ["good"]
    assert {await world.generate(1) for _ in range(5)} == {"good"}
    assert hung.calls == 1


async def test_replica_that_returns_is_chosen_only_when_it_serves_the_version(
    world: FleetWorld,
) -> None:
    old = await world.start(Scripted("a", {2}))
    assert await world.generate(2) == "a"
    await old.stop(None)
    await world.start(Scripted("b", {2}))
    back = Scripted("a", set())
    await world.start(back, life="2", is_serving=False)
    assert {await world.generate(2) for _ in range(5)} == {"b"}
    address = next(s for s in world.fleet.rollouts() if s.replica_id == "a").member.replica.address
    await world.beat("a", address, life="2", is_serving=True)
    await world.fleet.refresh()
    assert {await world.generate(2) for _ in range(5)} == {"b"}
    assert back.calls == 0
    back.loaded = {2}
    await world.fleet.probe()
    await world.members.remove(["b"], reason="it ended")
    await world.fleet.refresh()
    assert await world.generate(2) == "a"


async def test_job_with_staleness_gets_a_newer_version_only_when_none_holds_the_asked_one(
    redis: Redis,
) -> None:
    world = FleetWorld(MemberStore(redis, ttl_s=30), max_staleness=1)
    try:
        ahead, behind = Scripted("ahead", {2}), Scripted("behind", {1})
        await world.start(ahead)
        await world.start(behind)
        await until(lambda: len(world.fleet.rollouts()) == 2, within_s=30.0)
        await world.fleet.probe()
        assert await world.generate(2) == "ahead"
        assert {(await world.generation(1)).policy_version for _ in range(4)} == {1}
        behind.loaded = {2}  # an engine of full weights holds one version
        assert {(await world.generation(1)).policy_version for _ in range(4)} == {2}
        with pytest.raises(UnavailableError, match="version 3 of policy 'p'"):
            await world.generate(3, timeout_s=0.2)
    finally:
        await world.close()
