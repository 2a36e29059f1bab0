"""Where Prometheus finds the processes of jobs, which come and go on ports of their own."""

from typing import Any

from troupe.api.router.v1.router_pb2 import Replica
from troupe_router.members.store import MemberStore, kind_name


async def scrape_targets(members: MemberStore) -> list[dict[str, Any]]:
    """One target a living replica, with its kind, name and job: Prometheus's HTTP discovery.

    Each replica tells the router where its /metrics is.
    """
    return [_target(m.replica, m.job_id) for m in await members.all()]


def _target(replica: Replica, job_id: str) -> dict[str, Any]:
    return {
        "targets": [replica.admin_address] if replica.admin_address else [],
        "labels": {
            "component": kind_name(replica),
            "of_replica": replica.replica_id,
            "of_job": job_id,
        },
    }
