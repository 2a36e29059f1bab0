"""The ways to make a call of `benchmarks.router_overhead`: bare, plain and routed.

Owns the connections of the calling process. Measures nothing by itself.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from benchmarks.call_stages import Instants
from benchmarks.overhead_sidecar import (
    FLOOR_METHOD,
    PLAIN_METHOD,
    OverheadSidecar,
    floor_request,
)
from benchmarks.router_calls import CANDIDATES, NUM_PROMPTS, Call, observation, sampling
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.router.v1.router_pb2 import REPLICA_KIND_ROLLOUT, Replica, ReplicaPolicy
from troupe.candidates import GenerateRequest, generation_from_proto
from troupe.clients import codec
from troupe.clients.channel import CLIENT_OPTIONS
from troupe.spec import parse_spec
from troupe.spec.job import JobSpec
from troupe.tasks.family import Observation
from troupe_router.members.store import Member
from troupe_router.play.routing.fleet import Fleet
from troupe_router.play.routing.ports import FleetRollout

CROWD = 1024
"""Calls in flight at once, at most."""


@dataclass
class OneMember:
    """The membership store as the fleet reads it: one replica that holds version 0."""

    address: str

    async def of_job(self, job_id: str) -> list[Member]:
        """The replica, as its heartbeat says it."""
        replica = Replica(
            replica_id="r0",
            incarnation="1",
            kind=REPLICA_KIND_ROLLOUT,
            address=self.address,
            is_serving=True,
            seen_at=time.time(),
            policies=[ReplicaPolicy(policy="p", loaded_versions=[0])],
        )
        return [Member(replica, job_id, ("p",))]


CallOf = Callable[[int], Call]
"""The call that samples a number of tokens."""


@contextlib.asynccontextmanager
async def routed_call(
    sidecar: OverheadSidecar, spec: JobSpec, sent: Instants
) -> AsyncGenerator[CallOf]:
    """A Generate call as an episode makes it."""
    fleet = Fleet("job", spec, OneMember(sidecar.address))  # pyright: ignore[reportArgumentType]
    await fleet.refresh()
    stub: Any = fleet.rollouts()[0].client._stub  # pyright: ignore
    stub.Generate = sent.around(stub.Generate)
    port = FleetRollout(fleet, max_in_flight=CROWD * CANDIDATES)

    def of(num_tokens: int) -> Call:
        requests = _requests(num_tokens)

        async def call(number: int) -> None:
            await port.generate(requests[number % len(requests)], timeout_s=120.0)

        return call

    try:
        yield of
    finally:
        await fleet.close()


@contextlib.asynccontextmanager
async def plain_call(sidecar: OverheadSidecar, sent: Instants) -> AsyncGenerator[CallOf]:
    """The messages of a Generate call, made and read, without a router around it."""
    async with grpc.aio.insecure_channel(sidecar.floor_address, options=CLIENT_OPTIONS) as channel:
        stub: Any = channel.unary_unary(  # pyright: ignore[reportCallIssue]
            PLAIN_METHOD,
            request_serializer=pb.GenerateRequest.SerializeToString,
            response_deserializer=pb.GenerateResponse.FromString,
        )
        method = sent.around(stub)

        def of(num_tokens: int) -> Call:
            requests = _requests(num_tokens)

            async def call(number: int) -> None:
                message = codec.generate_request_to_proto(requests[number % len(requests)])
                generation_from_proto(await method(message, timeout=120.0))

            return call

        yield of


@contextlib.asynccontextmanager
async def floor_call(sidecar: OverheadSidecar) -> AsyncGenerator[CallOf]:
    """A gRPC call of as many bytes that takes as long, and nothing else."""
    async with grpc.aio.insecure_channel(sidecar.floor_address, options=CLIENT_OPTIONS) as channel:
        method: Any = channel.unary_unary(FLOOR_METHOD)  # pyright: ignore[reportCallIssue]

        def of(num_tokens: int) -> Call:
            request = floor_request(num_tokens)

            async def call(number: int) -> None:
                await method(request, timeout=120.0)

            return call

        yield of


def _requests(num_tokens: int) -> list[GenerateRequest[Observation]]:
    """Requests as an episode hands them over: what they are made of was there before the call."""
    how = sampling(num_tokens)
    return [
        GenerateRequest("p", 0, observation(number), CANDIDATES, how, seed=number)
        for number in range(NUM_PROMPTS)
    ]


def overhead_spec(model: Path) -> JobSpec:
    """A job of one agent and one policy, ``p``."""
    return parse_spec(
        {
            "name": "overhead",
            "steps": 1,
            "task": {"name": "plan_path"},
            "workflow": {"order": ["a"]},
            "agents": {"a": {"policy": "p"}},
            "policies": {"p": {"model": str(model), "train": {"kind": "full"}}},
        }
    )
