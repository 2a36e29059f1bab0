"""Lists of the platform: task families, algorithms, policies, replicas, the queue, the schema."""

import asyncio
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from redis.asyncio import Redis
from starlette.responses import Response

from services.router.jobs.desk import Desk
from services.router.jobs.queue import in_use, places
from services.router.jobs.record import JobRecord
from services.router.jobs.state import HOLDING
from services.router.jobs.store import JobStore
from services.router.membership import Member, MemberStore
from services.router.rest.bodies import answer
from services.router.rest.docs import SPEC, faults, shows
from troupe import plugins
from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.cli.starter import starter_spec
from troupe.clients.rest import models as m
from troupe.errors import InvalidArgumentError, NotFoundError
from troupe.spec import JobSpec
from troupe.spec.job import LoraSpec
from troupe.streams.ledger import StepLedger

OneJob = Annotated[str | None, Query(max_length=100, description="Only of this job.")]
Versions = dict[str, dict[str, int]]


def table_routes(redis: Redis, store: JobStore, desk: Desk, members: MemberStore) -> APIRouter:
    """Routes of the lists."""
    routes = APIRouter(prefix="/v1", tags=["platform"])

    async def list_tasks(request: Request) -> Response:
        names = plugins.registered(plugins.TASKS)
        return answer(request, {"tasks": await asyncio.to_thread(lambda: list(map(family, names)))})

    async def get_task(
        request: Request, name: Annotated[str, Path(max_length=100, examples=["plan_path"])]
    ) -> Response:
        return answer(request, await asyncio.to_thread(family, _known_task(name)))

    async def get_starter(
        request: Request, name: Annotated[str, Path(max_length=100, examples=["plan_path"])]
    ) -> Response:
        return answer(request, await asyncio.to_thread(starter_spec, _known_task(name)))

    async def list_algorithms(request: Request) -> Response:
        return answer(request, {"algorithms": await asyncio.to_thread(_algorithms)})

    async def list_replicas(request: Request, job_id: OneJob = None) -> Response:
        found = [x for x in await members.all() if job_id in (None, x.job_id)]
        versions: Versions = {}
        for name in {member.job_id for member in found if member.job_id}:
            versions[name] = await StepLedger(redis, name).versions()
        return answer(request, {"replicas": [_replica(x, versions) for x in found]})

    async def list_policies(request: Request, job_id: OneJob = None) -> Response:
        if job_id is None:
            jobs = [job for job in await store.unfinished() if job.state in HOLDING]
        else:
            jobs = [await store.get(job_id)]
        living = await members.all()
        found: list[dict[str, Any]] = []
        for job in jobs:
            ledger = StepLedger(redis, job.job_id)
            versions, digests = await ledger.versions(), await ledger.digests()
            own = [x for x in living if x.job_id == job.job_id]
            found += [_policy(job, p, own, versions, digests) for p in job.spec.policies]
        return answer(request, {"policies": found})

    async def quota(request: Request) -> Response:
        jobs = await store.unfinished()
        limits = desk.quota
        document = {
            "max_replicas": limits.max_replicas or None,
            "max_jobs": limits.max_jobs or None,
            "in_use": in_use(jobs),
            "active_jobs": sum(job.state in HOLDING for job in jobs),
            "queued": [
                {
                    "job_id": place.job.job_id,
                    "priority": place.job.priority,
                    "replicas": place.job.replicas,
                    "waits_for": place.waits_for,
                }
                for place in places(jobs, limits)
            ],
        }
        return answer(request, document)

    async def schema(request: Request) -> Response:
        return answer(request, JobSpec.model_json_schema())

    for path, endpoint, summary, responses in (
        ("/tasks", list_tasks, "Task families", shows(m.TaskList)),
        ("/tasks/{name}", get_task, "One task family", shows(m.TaskFamily)),
        ("/tasks/{name}/spec", get_starter, "A small spec to begin with", shows(JobSpec, SPEC)),
        ("/algorithms", list_algorithms, "Algorithms", shows(m.AlgorithmList)),
        ("/replicas", list_replicas, "Living replicas", shows(m.ReplicaList)),
        ("/policies", list_policies, "Policies of jobs at work", shows(m.PolicyList)),
        ("/quota", quota, "What jobs may take, and who waits", shows(m.Quota)),
    ):
        routes.add_api_route(
            path,
            endpoint,
            summary=summary,
            response_class=Response,
            responses={**responses, **faults(404, 422)},
        )
    routes.add_api_route(
        "/schemas/job-spec",
        schema,
        summary="JSON Schema of a job spec",
        response_class=Response,
        responses={
            200: {
                "description": "Done",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            304: {"description": "The client has it already (If-None-Match)"},
            **faults(),
        },
    )
    return routes


@lru_cache(maxsize=256)
def family(name: str) -> dict[str, Any]:
    """What REST says of a registered task family; an installation does not change while it runs."""
    try:
        found = plugins.load(plugins.TASKS, name)
    except InvalidArgumentError as error:
        return {"name": name, "error": error.message}
    return {
        "name": name,
        "summary": (found.__doc__ or "").strip().partition("\n")[0],
        "agents": list(found.agents),
        "params": found.Params.model_json_schema(),
        "local_terms": {agent: dict(terms) for agent, terms in found.local_terms.items()},
        "return_bound": found.return_bound,
    }


def _known_task(name: str) -> str:
    known = plugins.registered(plugins.TASKS)
    if name not in known:
        raise NotFoundError(f"no task family '{name}'; there are: {', '.join(known)}")
    return name


@lru_cache(maxsize=1)
def _algorithms() -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name in plugins.registered(plugins.ALGORITHMS):
        try:
            summary = (plugins.load(plugins.ALGORITHMS, name).__doc__ or "").strip()
        except InvalidArgumentError as error:
            summary = error.message
        found.append({"name": name, "summary": summary.partition("\n")[0]})
    return found


def _replica(member: Member, versions: Versions) -> dict[str, Any]:
    replica = member.replica
    committed = versions.get(member.job_id, {})
    return {
        "replica_id": replica.replica_id,
        "kind": ReplicaKind.Name(replica.kind).removeprefix("REPLICA_KIND_").lower(),
        "address": replica.address,
        "job_id": member.job_id or None,
        "is_serving": replica.is_serving,
        "num_in_flight": replica.num_in_flight,
        "seen_at": replica.seen_at,
        "policies": [
            {
                "policy": p.policy,
                "version": p.active_version,
                "loaded_versions": list(p.loaded_versions),
                "tensor_digest": p.tensor_digest,
                "lag": _lag(committed.get(p.policy), p.active_version),
            }
            for p in replica.policies
        ],
    }


def _policy(
    job: JobRecord,
    name: str,
    members: list[Member],
    versions: dict[str, int],
    digests: dict[str, str],
) -> dict[str, Any]:
    spec = job.spec.policies[name]
    replicas = [
        {
            "replica_id": member.replica.replica_id,
            "version": held.active_version,
            "tensor_digest": held.tensor_digest,
            "lag": _lag(versions.get(name), held.active_version),
            "is_serving": member.replica.is_serving,
        }
        for member in members
        for held in member.replica.policies
        if held.policy == name
    ]
    lags = [replica["lag"] for replica in replicas if replica["lag"] is not None]
    return {
        "job_id": job.job_id,
        "policy": name,
        "model": spec.model,
        "train": spec.train.kind,
        "rank": spec.train.rank if isinstance(spec.train, LoraSpec) else None,
        "trains": job.spec.trains(name),
        "agents": [agent for agent, seat in job.spec.agents.items() if seat.policy == name],
        "version": versions.get(name),
        "tensor_digest": digests.get(name),
        "replicas_wanted": spec.replicas,
        "replicas": replicas,
        "lag_max": max(lags, default=None),
    }


def _lag(committed: int | None, active: int) -> int | None:
    return None if committed is None else max(0, committed - active)
