"""The Prometheus series of a job that is played here."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from troupe.api.router.v1 import router_pb2
from troupe.clients import EnvClient, RolloutClient
from troupe_router.members.store import Member
from troupe_router.play import job_series
from troupe_router.play.routing.fleet import ReplicaConnection

JOB = "series-test-1"


@pytest.mark.parametrize("kind", ["env", "rollout"])
async def test_requests_of_replicas_when_the_job_ends_then_their_series_linger_and_go(
    kind: str,
) -> None:
    labels = {"job_id": JOB, "kind": kind, "replica": f"{JOB}-{kind}-0", "outcome": "OK"}
    address = "127.0.0.1:1"
    client = EnvClient(address, "plan_path", {}) if kind == "env" else RolloutClient(address)
    named = f"REPLICA_KIND_{kind.upper()}"
    replica = router_pb2.Replica(replica_id=labels["replica"], kind=named)
    ReplicaConnection(Member(replica, JOB), client, 0, labels["replica"]).answered()
    job_series.end(JOB, linger_s=0.01)
    assert REGISTRY.get_sample_value("troupe_router_requests_total", labels) == 1
    await asyncio.sleep(0.1)
    assert REGISTRY.get_sample_value("troupe_router_requests_total", labels) is None
    await client.close()
