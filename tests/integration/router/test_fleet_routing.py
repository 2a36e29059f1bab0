"""Generation over real gRPC replicas: versions, failing over, replicas that come back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from services.router.membership import Member, MemberStore
from services.router.routing.fleet import Fleet
from services.router.routing.ports import FleetRollout
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1 import rollout_pb2_grpc
from troupe.api.router.v1 import router_pb2
from troupe.errors import InvalidArgumentError, UnavailableError, VersionNotLoadedError
from troupe.serving.interceptor import ErrorInterceptor
from troupe.spec import parse_spec
from troupe.spec.job import SamplingSpec
from troupe.tasks.contract import Message


@dataclass
class Scripted(rollout_pb2_grpc.RolloutServiceServicer):
    """A replica that answers with its name while it holds the version."""

    name: str
    loaded: set[int] = field(default_factory=set[int])
    error: Exception | None = None
    calls: int = 0

    async def Generate(self, request: Any, context: Any) -> pb.GenerateResponse:
        self.calls += 1
        if self.error:
            raise self.error
        if request.policy_version not in self.loaded:
            raise VersionNotLoadedError("not loaded")
        candidates = [pb.GeneratedCandidate(text=self.name)] * request.num_candidates
        return pb.GenerateResponse(
            candidates=candidates, policy_version=request.policy_version, engine_s=0.001
        )

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        status = pb.PolicyStatus(policy="p", loaded_versions=sorted(self.loaded))
        return pb.GetStatusResponse(policies=[status])


@dataclass
class World:
    members: MemberStore
    fleet: Fleet
    port: FleetRollout
    start: Callable[..., Any]

    async def generate(self, version: int, timeout_s: float = 5.0) -> str:
        generation = await self.port.generate(
            policy="p",
            policy_version=version,
            observation=(Message("user", "go"),),
            num_candidates=2,
            sampling=SamplingSpec(max_new_tokens=4),
            seed=1,
            timeout_s=timeout_s,
        )
        return generation.candidates[0].text


@pytest.fixture
async def world(redis: Redis) -> AsyncIterator[World]:
    document = {
        "name": "demo",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool"]},
        "agents": {"tool": {"policy": "p"}},
        "policies": {"p": {"model": "m"}},
    }
    members = MemberStore(redis, ttl_s=30)
    fleet = Fleet("demo-1", parse_spec(document), members, refresh_s=0.02)
    servers: dict[str, grpc.aio.Server] = {}

    async def start(replica: Scripted, life: str = "1") -> grpc.aio.Server:
        server = grpc.aio.server(interceptors=[ErrorInterceptor()])
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(replica, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers[f"{replica.name}{life}"] = server
        member = router_pb2.Replica(
            replica_id=replica.name,
            kind=router_pb2.REPLICA_KIND_ROLLOUT,
            address=f"127.0.0.1:{port}",
            incarnation=life,
            is_serving=True,
            seen_at=1.0,
        )
        await members.put(Member(member, "demo-1", ("p",)))
        return server

    watching = asyncio.create_task(fleet.watch())
    yield World(members, fleet, FleetRollout(fleet), start)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await fleet.close()
    for server in servers.values():
        await server.stop(None)


async def test_generate_goes_only_to_the_replica_that_holds_the_version(world: World) -> None:
    old, new = Scripted("old", {1}), Scripted("new", {1, 2})
    await world.start(old)
    await world.start(new)
    answers = {await world.generate(2) for _ in range(4)}
    assert answers == {"new"}
    assert old.calls == 0


async def test_generate_waits_for_a_version_that_is_being_loaded(world: World) -> None:
    replica = Scripted("a", {1})
    await world.start(replica)
    await world.generate(1)
    waiting = asyncio.create_task(world.generate(2))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    replica.loaded = {1, 2}
    assert await waiting == "a"


async def test_generate_fails_over_to_another_replica(world: World) -> None:
    bad = Scripted("bad", {1}, error=UnavailableError("engine is down"))
    good = Scripted("good", {1})
    await world.start(bad)
    await world.start(good)
    assert {await world.generate(1) for _ in range(6)} == {"good"}


async def test_generate_survives_a_replica_that_restarts_at_another_port(world: World) -> None:
    first = await world.start(Scripted("a", {1}))
    assert await world.generate(1) == "a"
    await first.stop(None)
    waiting = asyncio.create_task(world.generate(1))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    await world.start(Scripted("a", {1}), life="2")
    assert await waiting == "a"


async def test_generate_without_the_version_gives_up_and_says_which(world: World) -> None:
    await world.start(Scripted("a", {1}))
    with pytest.raises(UnavailableError, match="version 7 of policy 'p'"):
        await world.generate(7, timeout_s=0.2)


async def test_error_that_a_retry_cannot_help_is_raised_at_once(world: World) -> None:
    replica = Scripted("a", {1}, error=InvalidArgumentError("prompt too long"))
    await world.start(replica)
    with pytest.raises(InvalidArgumentError, match="too long"):
        await world.generate(1)
    assert replica.calls == 1
    assert world.fleet.rollouts()[0].num_in_flight == 0
