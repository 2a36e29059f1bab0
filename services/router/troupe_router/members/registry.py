"""Handles heartbeats: keeps members alive, assigns work, reports joins, and says when to exit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from troupe.api.router.v1.router_pb2 import Assignment, Replica, ReplicaKind
from troupe.errors import ForbiddenError
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.fencing import newest_epoch
from troupe_router.jobs.processes import kind_of
from troupe_router.jobs.record import JobRecord
from troupe_router.jobs.store import JobStore
from troupe_router.members.assignment import Work, assign
from troupe_router.members.store import Member, MemberStore, kind_name


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to a heartbeat."""

    assignment: Assignment
    should_exit: bool


class Registry:
    """Membership and assignment of every replica that calls this router."""

    def __init__(self, redis: Redis, store: JobStore, members: MemberStore) -> None:
        self._redis = redis
        self._store = store
        self._members = members

    @property
    def ttl_s(self) -> float:
        """A silent member is evicted after this time."""
        return self._members.ttl_s

    async def heartbeat(self, replica: Replica) -> Seen:
        """Note that the replica is alive, in this state. Idempotent.

        Raises:
            ForbiddenError: its name is that of a replica of another kind.
        """
        replica.seen_at = time.time()
        if kept := await self._kept(replica):
            return kept
        living = await self._members.all()
        unfinished = await self._store.unfinished()
        held = next((m for m in living if m.replica.replica_id == replica.replica_id), None)
        _check_name(replica, held, unfinished)
        jobs = [record for record in unfinished if record.is_active]
        work = assign(replica, jobs, living)
        if work is None:
            is_same = held is not None and held.replica.incarnation == replica.incarnation
            had_work = is_same and held is not None and held.job_id != ""
            # The old assignment stays in the entry, so that the answer stays "exit".
            old = held if had_work and held is not None else Member(replica)
            await self._members.put(Member(replica, old.job_id, old.policies))
            return Seen(Assignment(), should_exit=had_work)
        job = work.job
        await self._members.put(Member(replica, job.job_id, work.policies))
        if (
            held is None
            or held.job_id != job.job_id
            or (held.replica.incarnation != replica.incarnation)
        ):
            await self._emit_joined(replica, job.job_id)
        return await self._seen(work)

    async def _kept(self, replica: Replica) -> Seen | None:
        """The answer to a replica that keeps its assignment: nearly every heartbeat.

        It reads no other replica and no other job, so a heartbeat costs the same with many replicas
        as with few. `assign` would decide the same.
        """
        held = await self._members.find(replica.replica_id)
        if held is None or not held.job_id or held.replica.incarnation != replica.incarnation:
            return None
        if held.replica.kind != replica.kind:
            return None
        job = await self._store.find(held.job_id)
        if job is None or not job.is_active or replica.job_id not in ("", held.job_id):
            return None
        await self._members.put(Member(replica, held.job_id, held.policies))
        return await self._seen(Work(job, held.policies))

    async def _seen(self, work: Work) -> Seen:
        job = work.job
        epochs = {
            policy: await newest_epoch(self._redis, job.job_id, "trainer", policy=policy)
            for policy in job.spec.trainers()
        }
        newest = epochs.pop("", 0)
        assignment = Assignment(
            job_id=job.job_id,
            spec_json=job.spec_as_begun,
            policies=work.policies,
            run_dir=str(job.run_dir),
            trainer_epoch=newest,
            trainer_epochs=epochs,
        )
        return Seen(assignment, should_exit=False)

    async def members(self, job_id: str, kind: ReplicaKind) -> list[Member]:
        """Living members of a job."""
        return await self._members.of_job(job_id, kind)

    async def _emit_joined(self, replica: Replica, job_id: str) -> None:
        log = EventLog(self._redis, job_id, source="router")
        data = {
            "replica_id": replica.replica_id,
            "kind": kind_name(replica),
            "address": replica.address,
        }
        event_id = f"joined:{replica.replica_id}:{replica.incarnation}"
        await log.emit("replica.joined", data, event_id=event_id)


def _check_name(replica: Replica, held: Member | None, jobs: Sequence[JobRecord]) -> None:
    """A name belongs to one kind: an env, beside untrusted programs, must not take a trainer's.

    The name of a launched replica determines its kind, whichever came first; any other name belongs
    to the kind that holds it until its lease ends.
    """
    launched_kinds = {
        kind for job in jobs if (kind := kind_of(replica.replica_id, job.job_id, job.spec))
    }
    owners = launched_kinds or ({held.replica.kind} if held is not None else set[ReplicaKind]())
    if owners and replica.kind not in owners:
        names = " or ".join(sorted(ReplicaKind.Name(kind) for kind in owners))
        raise ForbiddenError(
            f"'{replica.replica_id}' is the name of a replica of kind {names}, and this one is of "
            f"kind {ReplicaKind.Name(replica.kind)}; give it another name "
            "(TROUPE_<SERVICE>_REPLICA_ID)"
        )
