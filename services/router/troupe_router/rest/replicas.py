"""Routes of what is at work: policies, replicas, the queue and its quota."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from redis.asyncio import Redis
from starlette.responses import Response

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.clients.rest import models as m
from troupe.runtime.streams.ledger import StepLedger
from troupe.spec.job import LoraSpec
from troupe_router.jobs.queue import in_use, places
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import HOLDING
from troupe_router.jobs.store import JobStore
from troupe_router.jobs.submit import JobCommands
from troupe_router.members.store import Member, MemberStore
from troupe_router.rest.bodies import answer
from troupe_router.rest.openapi import shows
from troupe_router.rest.route import Route, routed

OneJob = Annotated[str | None, Query(max_length=100, description="Only of this job.")]
Versions = dict[str, dict[str, int]]


class ReplicaRoutes:
    """Policies, replicas and the queue of all jobs."""

    def __init__(
        self, redis: Redis, store: JobStore, commands: JobCommands, members: MemberStore
    ) -> None:
        self._redis = redis
        self._store = store
        self._commands = commands
        self._members = members

    async def replicas(self, request: Request, job_id: OneJob = None) -> Response:
        found = [x for x in await self._members.all() if job_id in (None, x.job_id)]
        versions: Versions = {}
        for name in {member.job_id for member in found if member.job_id}:
            versions[name] = await StepLedger(self._redis, name).versions()
        return answer(request, {"replicas": [_replica(x, versions) for x in found]})

    async def policies(self, request: Request, job_id: OneJob = None) -> Response:
        if job_id is None:
            jobs = [job for job in await self._store.unfinished() if job.state in HOLDING]
        else:
            jobs = [await self._store.get(job_id)]
        living = await self._members.all()
        found: list[dict[str, Any]] = []
        for job in jobs:
            ledger = StepLedger(self._redis, job.job_id)
            versions, digests = await ledger.versions(), await ledger.digests()
            own = [x for x in living if x.job_id == job.job_id]
            found += [_policy(job, p, own, versions, digests) for p in job.spec.policies]
        return answer(request, {"policies": found})

    async def quota(self, request: Request) -> Response:
        jobs = await self._store.unfinished()
        limits = self._commands.quota
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


def replica_routes(
    redis: Redis, store: JobStore, commands: JobCommands, members: MemberStore
) -> APIRouter:
    """Routes of policies, replicas and the quota."""
    own = ReplicaRoutes(redis, store, commands, members)
    return routed(
        "/v1",
        "platform",
        Route("/replicas", own.replicas, "Living replicas", shows(m.ReplicaList)),
        Route("/policies", own.policies, "Policies of jobs at work", shows(m.PolicyList)),
        Route("/quota", own.quota, "What jobs may take, and who waits", shows(m.Quota)),
    )


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
