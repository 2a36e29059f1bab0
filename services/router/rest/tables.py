"""Read-only lists: task families and living replicas."""

from typing import Any

from fastapi import APIRouter

from services.router.membership import Member, MemberStore
from troupe import plugins
from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.errors import InvalidArgumentError


def table_routes(members: MemberStore) -> APIRouter:
    """Routes of the lists."""
    routes = APIRouter(prefix="/v1")

    async def list_tasks() -> dict[str, Any]:
        return {"tasks": [_family(name) for name in plugins.registered(plugins.TASKS)]}

    async def list_replicas(job_id: str | None = None) -> dict[str, Any]:
        found = await members.all()
        return {"replicas": [_replica(m) for m in found if job_id in (None, m.job_id)]}

    routes.add_api_route("/tasks", list_tasks, tags=["tasks"], summary="Task families")
    routes.add_api_route("/replicas", list_replicas, tags=["replicas"], summary="Living replicas")
    return routes


def _family(name: str) -> dict[str, Any]:
    try:
        family = plugins.load(plugins.TASKS, name)
    except InvalidArgumentError as error:
        return {"name": name, "error": error.message}
    return {
        "name": name,
        "summary": (family.__doc__ or "").strip().partition("\n")[0],
        "agents": list(family.agents),
        "params": family.Params.model_json_schema(),
        "local_terms": {agent: dict(terms) for agent, terms in family.local_terms.items()},
        "return_bound": family.return_bound,
    }


def _replica(member: Member) -> dict[str, Any]:
    replica = member.replica
    return {
        "replica_id": replica.replica_id,
        "kind": ReplicaKind.Name(replica.kind).removeprefix("REPLICA_KIND_").lower(),
        "address": replica.address,
        "job_id": member.job_id or None,
        "policies": {p.policy: p.active_version for p in replica.policies},
        "num_in_flight": replica.num_in_flight,
        "is_serving": replica.is_serving,
        "seen_at": replica.seen_at,
    }
