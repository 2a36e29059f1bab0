"""The services' client of the router: membership, and the code of jobs."""

from troupe.api.router.v1 import router_pb2 as pb
from troupe.api.router.v1.router_pb2_grpc import RouterServiceStub
from troupe.bundles.archive import Bundle, read_bundle
from troupe.clients.channel import Client


class RouterClient(Client):
    """Registers, heartbeats and lists replicas."""

    peer = "router"

    def __init__(self, address: str, *, retry_for_s: float = 0.0) -> None:
        super().__init__(address, retry_for_s=retry_for_s)
        self._stub = RouterServiceStub(self._channel)

    async def register(self, replica: pb.Replica, *, timeout_s: float = 5.0) -> pb.Assignment:
        """Join, or join again; an assignment with an empty job_id means no work yet."""
        request = pb.RegisterReplicaRequest(replica=replica)
        answer = await self._call(
            "RegisterReplica",
            lambda left_s: self._stub.RegisterReplica(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        return answer.assignment

    async def heartbeat(
        self, replica: pb.Replica, *, timeout_s: float = 5.0
    ) -> pb.SendHeartbeatResponse:
        """Stay a member; raises NotFoundError when the router does not know this replica."""
        request = pb.SendHeartbeatRequest(replica=replica)
        return await self._call(
            "SendHeartbeat",
            lambda left_s: self._stub.SendHeartbeat(request, timeout=left_s),
            timeout_s=timeout_s,
        )

    async def list_replicas(
        self,
        job_id: str,
        kind: pb.ReplicaKind = pb.REPLICA_KIND_UNSPECIFIED,
        *,
        timeout_s: float = 5.0,
    ) -> list[pb.Replica]:
        """Living replicas of a job, by replica_id."""
        request = pb.ListReplicasRequest(job_id=job_id, kind=kind)
        answer = await self._call(
            "ListReplicas",
            lambda left_s: self._stub.ListReplicas(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        return list(answer.replicas)

    async def bundle(self, digest: str, *, timeout_s: float = 60.0) -> Bundle:
        """The bundle that ``digest`` names, checked; raises NotFoundError."""
        request = pb.GetBundleRequest(digest=digest)
        answer = await self._call(
            "GetBundle",
            lambda left_s: self._stub.GetBundle(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        return read_bundle(answer.archive, digest=digest, max_bytes=len(answer.archive))
