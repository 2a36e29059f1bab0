"""RouterService: proto in, registry calls, proto out."""

from typing import Any

import grpc.aio

from services.router.registry import Registry
from troupe.api.router.v1 import router_pb2 as pb
from troupe.api.router.v1 import router_pb2_grpc
from troupe.errors import InvalidArgumentError

Context = grpc.aio.ServicerContext[Any, Any]


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """Membership over gRPC."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def RegisterReplica(  # noqa: N802
        self, request: pb.RegisterReplicaRequest, context: Context
    ) -> pb.RegisterReplicaResponse:
        """Join, and learn what to work on."""
        seen = await self._registry.heartbeat(_checked(request.replica))
        return pb.RegisterReplicaResponse(
            assignment=seen.assignment, lease_ttl_s=self._registry.ttl_s
        )

    async def SendHeartbeat(  # noqa: N802
        self, request: pb.SendHeartbeatRequest, context: Context
    ) -> pb.SendHeartbeatResponse:
        """Stay a member."""
        seen = await self._registry.heartbeat(_checked(request.replica))
        return pb.SendHeartbeatResponse(assignment=seen.assignment, should_exit=seen.should_exit)

    async def ListReplicas(  # noqa: N802
        self, request: pb.ListReplicasRequest, context: Context
    ) -> pb.ListReplicasResponse:
        """Living replicas of a job."""
        members = await self._registry.members(request.job_id, request.kind)
        return pb.ListReplicasResponse(replicas=[m.replica for m in members])


def _checked(replica: pb.Replica) -> pb.Replica:
    if not replica.replica_id or not replica.address:
        raise InvalidArgumentError("a replica needs a replica_id and an address (host:port)")
    if replica.kind == pb.REPLICA_KIND_UNSPECIFIED:
        raise InvalidArgumentError(f"replica '{replica.replica_id}' does not say its kind")
    return replica
