"""Affinity, spill and admission over real gRPC replicas."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from fleet_world import JOB, FleetWorld, Scripted, until
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from troupe.errors import OverloadedError
from troupe.tasks.family import Message
from troupe_router.members.store import MemberStore

Start = Callable[..., Awaitable[FleetWorld]]
RULES = Message("system", "You walk on a map and say where to go. " * 10)


@pytest.fixture
async def new_world(redis: Redis) -> AsyncIterator[Start]:
    """Makes a world with the replicas "a" and "b" at version 1."""
    worlds: list[FleetWorld] = []

    async def make(*replicas: Scripted, **limits: int) -> FleetWorld:
        world = FleetWorld(MemberStore(redis, ttl_s=30), **limits)
        worlds.append(world)
        for replica in replicas:
            await world.start(replica)
        await until(lambda: len(world.fleet.rollouts()) == len(replicas))
        await world.fleet.probe()
        return world

    yield make
    for world in worlds:
        await world.close()


def counted(affinity: str) -> float:
    labels = {"job_id": JOB, "policy": "p", "affinity": affinity}
    return REGISTRY.get_sample_value("troupe_router_affinity_total", labels) or 0.0


def tokens(source: str) -> float:
    labels = {"job_id": JOB, "policy": "p", "source": source}
    return REGISTRY.get_sample_value("troupe_router_prompt_tokens_total", labels) or 0.0


async def test_cached_tokens_are_counted_as_the_engine_says_them(new_world: Start) -> None:
    replica = Scripted("a", {1}, cached=15)
    world = await new_world(replica)
    before = tokens("cached"), tokens("computed")
    assert (await world.generation(1)).num_cached_tokens == 15
    assert (tokens("cached"), tokens("computed")) == (before[0] + 15, before[1] + 5)
    replica.cached = None
    assert (await world.generation(1)).num_cached_tokens is None
    assert (tokens("cached"), tokens("computed")) == (before[0] + 15, before[1] + 5)


async def test_later_turns_of_an_episode_go_where_its_first_went(new_world: Start) -> None:
    world = await new_world(Scripted("a", {1}), Scripted("b", {1}))
    hits = counted("hit")

    async def episode(number: int) -> set[str]:
        talk = [RULES, Message("user", f"Map {number}: " + f"wall {number} " * 30)]
        seen: set[str] = set()
        for turn in range(4):
            seen.add(await world.generate(1, observation=tuple(talk)))
            talk += [Message("assistant", f"up {number}"), Message("user", f"turn {turn} done")]
        return seen

    found = [await episode(number) for number in range(8)]
    assert [len(replicas) for replicas in found] == [1] * 8
    assert counted("hit") - hits >= 3 * 8


async def test_prompt_spills_when_the_replica_that_knows_it_is_loaded(new_world: Start) -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    replicas = {name: Scripted(name, {1}, gate=gate) for name, gate in gates.items()}
    world = await new_world(*replicas.values())
    spilled = counted("spill")
    calls = [asyncio.create_task(world.generate(1)) for _ in range(8)]
    await until(lambda: sum(r.calls for r in replicas.values()) == 8)
    # The bound is 1.5 times the mean: with 8 calls over 2 replicas none holds more than 6.
    assert max(r.calls for r in replicas.values()) <= 6
    assert counted("spill") > spilled
    for gate in gates.values():
        gate.set()
    await asyncio.gather(*calls)


async def test_full_replica_is_passed_over_and_the_caller_backs_off_until_one_has_room(
    new_world: Start,
) -> None:
    full = {name: Scripted(name, {1}, error=OverloadedError("no slot")) for name in "ab"}
    world = await new_world(*full.values())
    waiting = asyncio.create_task(world.generate(1, timeout_s=20))
    await until(lambda: min(full["a"].calls, full["b"].calls) >= 2)
    # Jittered pauses between the rounds: tens of calls, not thousands.
    assert full["a"].calls + full["b"].calls < 20
    full["b"].error = None
    assert await waiting == "b"
    assert {await world.generate(1) for _ in range(3)} == {"b"}


async def test_call_beyond_the_routers_bound_is_refused_and_others_wait_their_turn(
    new_world: Start,
) -> None:
    gate = asyncio.Event()
    replica = Scripted("a", {1}, gate=gate)
    world = await new_world(replica, max_calls=4, max_in_flight=2)
    calls = [asyncio.create_task(world.generate(1, timeout_s=20)) for _ in range(4)]
    await until(lambda: replica.calls > 0)
    with pytest.raises(OverloadedError, match="takes no more"):
        await world.generate(1)
    assert replica.calls == 1  # two candidates are its limit; three calls wait for room
    gate.set()
    async with asyncio.timeout(30):
        assert await asyncio.gather(*calls) == ["a"] * 4
    assert await world.generate(1) == "a"
