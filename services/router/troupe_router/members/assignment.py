"""Assigns work to processes: pure decisions over active jobs and living members."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from troupe.api.router.v1.router_pb2 import Replica, ReplicaKind
from troupe.spec.pools import num_serving, rollout_pools
from troupe_router.jobs.processes import policy_of
from troupe_router.jobs.record import JobRecord
from troupe_router.members.store import Member


@dataclass(frozen=True, slots=True)
class Work:
    """A job and the policies to serve, or the one policy that a per-policy trainer learns."""

    job: JobRecord
    policies: tuple[str, ...] = ()


def assign(replica: Replica, jobs: Sequence[JobRecord], members: Sequence[Member]) -> Work | None:
    """What ``replica`` works on, or None when nothing needs it.

    ``jobs`` are the active ones, oldest first. An assignment holds for a process's life: the same
    incarnation keeps what it has while the job is active.
    """
    others = [m for m in members if m.replica.replica_id != replica.replica_id]
    allowed = [j for j in jobs if replica.job_id in ("", j.job_id)]
    held = next((m for m in members if _is_same_life(m.replica, replica) and m.job_id), None)
    if held is not None:
        job = next((j for j in allowed if j.job_id == held.job_id), None)
        return Work(job, held.policies) if job else None
    if replica.kind == ReplicaKind.REPLICA_KIND_TRAINER:
        return _trainer(replica, allowed, others)
    if replica.kind == ReplicaKind.REPLICA_KIND_ROLLOUT:
        return _rollout(replica, allowed, others)
    if replica.kind == ReplicaKind.REPLICA_KIND_ENV:
        return _env(allowed, others)
    return None


def _is_same_life(first: Replica, second: Replica) -> bool:
    return first.replica_id == second.replica_id and first.incarnation == second.incarnation


def _trainer(replica: Replica, jobs: Sequence[JobRecord], others: Sequence[Member]) -> Work | None:
    """The oldest job without a trainer, or with a policy that lacks its trainer."""
    trainers = [m for m in others if m.replica.kind == ReplicaKind.REPLICA_KIND_TRAINER]
    for job in jobs:
        job_trainers = [m for m in trainers if m.job_id == job.job_id]
        if not job.spec.trainer.per_policy:
            if not job_trainers:
                return Work(job)
            continue
        named = policy_of(replica.replica_id, job.job_id, service="trainer")
        if named in job.spec.policies:
            return Work(job, (named,))
        learnt = {policy for member in job_trainers for policy in member.policies}
        lacking = [policy for policy in job.spec.trainers() if policy not in learnt]
        if lacking:
            return Work(job, (lacking[0],))
    return None


def _rollout(replica: Replica, jobs: Sequence[JobRecord], others: Sequence[Member]) -> Work | None:
    """The policies of the pool that lacks most replicas in the oldest job that lacks any."""
    for job in jobs:
        pools = {pool.name: pool for pool in rollout_pools(job.spec)}
        named = policy_of(replica.replica_id, job.job_id)
        if named in pools:
            return Work(job, pools[named].policies)
        loaded = {p.policy for p in replica.policies}
        held = [
            name for pool in pools.values() if loaded & {*pool.policies} for name in pool.policies
        ]
        if held:  # one that still loads names only some of its policies
            return Work(job, tuple(held))
        serving = [
            m.policies
            for m in others
            if m.job_id == job.job_id and m.replica.kind == ReplicaKind.REPLICA_KIND_ROLLOUT
        ]
        lacking = {n: pool.replicas - num_serving(pool, serving) for n, pool in pools.items()}
        pool = max(lacking, key=lambda name: lacking[name])
        if lacking[pool] > 0:
            return Work(job, pools[pool].policies)
    return None


def _env(jobs: Sequence[JobRecord], others: Sequence[Member]) -> Work | None:
    """The job with the fewest envs; the oldest of equals."""
    count = Counter(
        m.job_id for m in others if m.replica.kind == ReplicaKind.REPLICA_KIND_ENV and m.job_id
    )
    return Work(min(jobs, key=lambda job: count[job.job_id])) if jobs else None
