"""Scripted rollout replicas behind real gRPC servers, and the fleet that routes over them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from troupe.api.records.v1.records_pb2 import Prompt
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1 import rollout_pb2_grpc
from troupe.api.router.v1 import router_pb2
from troupe.candidates import GenerateRequest, Generation
from troupe.errors import VersionNotLoadedError
from troupe.runtime.serving.interceptor import ErrorInterceptor
from troupe.spec import parse_spec
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Message, Observation
from troupe_router.members.store import Member, MemberStore
from troupe_router.play.routing.fleet import Fleet
from troupe_router.play.routing.ports import FleetRollout

JOB = "demo-1"
DOCUMENT = {
    "name": "demo",
    "steps": 1,
    "task": {"name": "plan_path"},
    "workflow": {"order": ["tool"]},
    "agents": {"tool": {"policy": "p"}},
    "policies": {"p": {"model": "m"}},
}
GO: Observation = (Message("user", "go"),)


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for what another task brings about."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.005)


@dataclass
class Scripted(rollout_pb2_grpc.RolloutServiceServicer):
    """A replica that answers with its name while it holds the version.

    Prompts have ten tokens. ``gate`` holds its answers back while it is not set.
    """

    name: str
    loaded: set[int] = field(default_factory=set[int])
    error: Exception | None = None
    calls: int = 0
    gate: asyncio.Event | None = None
    cached: int | None = None

    async def Generate(self, request: Any, context: Any) -> pb.GenerateResponse:
        self.calls += 1
        if self.gate:
            await self.gate.wait()
        if self.error:
            raise self.error
        if request.policy_version not in self.loaded:
            raise VersionNotLoadedError("not loaded")
        candidates = [pb.GeneratedCandidate(text=self.name)] * request.num_candidates
        return pb.GenerateResponse(
            prompt=Prompt(token_ids=range(10)),
            candidates=candidates,
            policy_version=request.policy_version,
            engine_s=0.001,
            num_cached_tokens=self.cached,
        )

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        status = pb.PolicyStatus(policy="p", loaded_versions=sorted(self.loaded))
        return pb.GetStatusResponse(policies=[status])


class FleetWorld:
    """A job's replicas. ``watch`` follows the membership as the router does."""

    def __init__(self, members: MemberStore, max_staleness: int = 0, **limits: int) -> None:
        self.members = members
        loss = {"importance": {}} if max_staleness else {}
        algorithm = {"kind": "at_grpo", "loss": loss}
        document = {**DOCUMENT, "max_staleness": max_staleness, "algorithm": algorithm}
        spec = parse_spec(document)
        self.fleet = Fleet(JOB, spec, members, refresh_s=0.02)
        self.port = FleetRollout(self.fleet, **limits)
        self._servers: list[grpc.aio.Server] = []
        self._watching = asyncio.create_task(self.fleet.watch())

    async def start(self, replica: Scripted, life: str = "1", **member: Any) -> grpc.aio.Server:
        """Serve a replica, and tell the membership."""
        server = grpc.aio.server(interceptors=[ErrorInterceptor()])
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(replica, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._servers.append(server)
        await self.beat(replica.name, f"127.0.0.1:{port}", life, **member)
        return server

    async def beat(self, name: str, address: str, life: str = "1", **member: Any) -> None:
        """A heartbeat."""
        replica = router_pb2.Replica(
            replica_id=name,
            kind=router_pb2.REPLICA_KIND_ROLLOUT,
            address=address,
            incarnation=life,
            **{"is_serving": True, "seen_at": 1.0, **member},
        )
        await self.members.put(Member(replica, JOB, ("p",)))

    async def generate(
        self,
        version: int,
        timeout_s: float = 5.0,
        observation: Observation = GO,
    ) -> str:
        """The name of the replica that answered."""
        generation = await self.generation(version, timeout_s, observation)
        return generation.candidates[0].text

    async def generation(
        self,
        version: int,
        timeout_s: float = 5.0,
        observation: Observation = GO,
    ) -> Generation:
        """Two candidates."""
        sampling = SamplingSpec(max_new_tokens=4)
        request = GenerateRequest("p", version, observation, 2, sampling, seed=1)
        return await self.port.generate(request, timeout_s=timeout_s)

    async def close(self) -> None:
        """End everything."""
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self.fleet.close()
        for server in self._servers:
            await server.stop(None)
