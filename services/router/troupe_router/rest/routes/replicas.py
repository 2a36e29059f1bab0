"""Routes of what is at work: policies, replicas, the queue and its quota."""

from typing import Annotated

from fastapi import APIRouter, Query

from troupe.clients.rest.models.jobs import QueuedJobDocument, QuotaDocument
from troupe.clients.rest.models.replicas import (
    PolicyDocument,
    PolicyList,
    PolicyReplicaDocument,
    ReplicaDocument,
    ReplicaList,
    ReplicaPolicyDocument,
)
from troupe.runtime.streams.ledger import StepLedger
from troupe.spec.policy import LoraSpec
from troupe.spec.pools import pool_of
from troupe_router.jobs.queue import in_use, places
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.state import HOLDING
from troupe_router.members.store import Member, kind_name
from troupe_router.rest.openapi import EVERY, problems
from troupe_router.rest.parts import Parts
from troupe_router.rest.strict_route import StrictRoute

routes = APIRouter(
    prefix="/v1",
    tags=["platform"],
    route_class=StrictRoute,
    responses={**EVERY, **problems(404)},
)
OneJob = Annotated[str | None, Query(max_length=100, description="Only of this job.")]
Versions = dict[str, dict[str, int]]


@routes.get("/replicas")
async def replicas(parts: Parts, job_id: OneJob = None) -> ReplicaList:
    """Living replicas."""
    members = [x for x in await parts.members.all() if job_id in (None, x.job_id)]
    versions: Versions = {}
    for name in {member.job_id for member in members if member.job_id}:
        versions[name] = await StepLedger(parts.redis, name).versions()
    return ReplicaList(replicas=[_replica(x, versions) for x in members])


@routes.get("/policies")
async def policies(parts: Parts, job_id: OneJob = None) -> PolicyList:
    """Policies of jobs at work."""
    if job_id is None:
        jobs = [job for job in await parts.store.unfinished() if job.state in HOLDING]
    else:
        jobs = [await parts.store.get(job_id)]
    living = await parts.members.all()
    shown: list[PolicyDocument] = []
    for job in jobs:
        ledger = StepLedger(parts.redis, job.job_id)
        versions, digests = await ledger.versions(), await ledger.digests()
        members = [x for x in living if x.job_id == job.job_id]
        shown += [_policy(job, p, members, versions, digests) for p in job.spec.policies]
    return PolicyList(policies=shown)


@routes.get("/quota")
async def quota(parts: Parts) -> QuotaDocument:
    """What jobs may take, and who waits."""
    jobs = await parts.store.unfinished()
    limits = parts.commands.quota
    return QuotaDocument(
        max_replicas=limits.max_replicas or None,
        max_jobs=limits.max_jobs or None,
        in_use=in_use(jobs),
        active_jobs=sum(job.state in HOLDING for job in jobs),
        queued=[
            QueuedJobDocument(
                job_id=place.job.job_id,
                priority=place.job.priority,
                replicas=place.job.replicas,
                waits_for=place.waits_for,
            )
            for place in places(jobs, limits)
        ],
    )


def _replica(member: Member, versions: Versions) -> ReplicaDocument:
    replica = member.replica
    committed = versions.get(member.job_id, {})
    return ReplicaDocument(
        replica_id=replica.replica_id,
        kind=kind_name(replica),
        address=replica.address,
        job_id=member.job_id or None,
        is_serving=replica.is_serving,
        num_in_flight=replica.num_in_flight,
        seen_at=replica.seen_at,
        policies=[
            ReplicaPolicyDocument(
                policy=p.policy,
                version=p.active_version,
                loaded_versions=list(p.loaded_versions),
                tensor_digest=p.tensor_digest,
                lag=_lag(committed.get(p.policy), p.active_version),
            )
            for p in replica.policies
        ],
    )


def _policy(
    job: JobRecord,
    name: str,
    members: list[Member],
    versions: dict[str, int],
    digests: dict[str, str],
) -> PolicyDocument:
    spec, pool = job.spec.policies[name], pool_of(job.spec, name)
    held = [
        PolicyReplicaDocument(
            replica_id=member.replica.replica_id,
            version=p.active_version,
            tensor_digest=p.tensor_digest,
            lag=_lag(versions.get(name), p.active_version),
            is_serving=member.replica.is_serving,
        )
        for member in members
        for p in member.replica.policies
        if p.policy == name
    ]
    return PolicyDocument(
        job_id=job.job_id,
        policy=name,
        model=spec.model,
        train=spec.train.kind,
        rank=spec.train.rank if isinstance(spec.train, LoraSpec) else None,
        trains=job.spec.trains(name),
        agents=[agent for agent, seat in job.spec.agents.items() if seat.policy == name],
        version=versions.get(name),
        tensor_digest=digests.get(name),
        pool=pool.name,
        replicas_wanted=pool.replicas,
        replicas=held,
        lag_max=max((x.lag for x in held if x.lag is not None), default=None),
    )


def _lag(committed: int | None, active: int) -> int | None:
    return None if committed is None else max(0, committed - active)
