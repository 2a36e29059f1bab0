"""Where Prometheus finds the processes of all jobs: its HTTP service discovery, beside /metrics.

A job's processes come and go on ports of their own; each tells the router where its /metrics is.
"""

from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe_router.members.store import MemberStore


def add_scrape_targets(app: FastAPI, members: MemberStore) -> None:
    """Serve ``/metrics/targets``: one target a living replica, with its kind, name and job."""

    async def targets() -> JSONResponse:
        return JSONResponse([_target(m.replica, m.job_id) for m in await members.all()])

    app.add_api_route("/metrics/targets", targets, include_in_schema=False)


def _target(replica: Any, job_id: str) -> dict[str, Any]:
    kind = ReplicaKind.Name(replica.kind).removeprefix("REPLICA_KIND_").lower()
    return {
        "targets": [replica.admin_address] if replica.admin_address else [],
        "labels": {"component": kind, "replica": replica.replica_id, "of_job": job_id},
    }
