"""Replicas and their assignments, in Redis with expiry, so that routers are interchangeable.

Owns the replica entries and reports those that left. Never decides what a replica works on (see
assignment).
"""

import json
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from troupe.api.router.v1.router_pb2 import Replica, ReplicaKind
from troupe.runtime.streams import keys
from troupe.runtime.streams.events import EventLog
from troupe.runtime.streams.redis import WHEN_FULL, redis_errors

# A full Redis takes it: else each replica would count as gone after its ttl, and no job could end.
# KEYS replica replicas last-work; ARGV replica_id member ttl_ms last_words.
_PUT = f"""{WHEN_FULL}
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
redis.call('SADD', KEYS[2], ARGV[1])
return false
"""
# Both skip a replica that came back. KEYS replica replicas last-work; ARGV replica_id.
_LAST_WORK_OF_DEAD = """
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
return redis.call('HGET', KEYS[3], ARGV[1])
"""
_FORGET = """
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return false
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A living replica and what it works on (``job_id`` empty: nothing yet)."""

    replica: Replica
    job_id: str = ""
    policies: tuple[str, ...] = ()


def kind_name(replica: Replica) -> str:
    """Example: rollout, as labels, events and REST say it."""
    return ReplicaKind.Name(replica.kind).removeprefix("REPLICA_KIND_").lower()


class MemberStore:
    """The living replicas of every job."""

    def __init__(self, redis: Redis, *, ttl_s: float) -> None:
        self._redis = redis
        self.ttl_s = ttl_s

    async def put(self, member: Member) -> None:
        """Write a heartbeat: the member lives for another ``ttl_s``."""
        replica_id = member.replica.replica_id
        with redis_errors(f"heartbeat of {replica_id}"):
            ttl_ms = round(self.ttl_s * 1000)
            await self._script(_PUT, replica_id, _encode(member), ttl_ms, _last_words(member))

    async def find(self, replica_id: str) -> Member | None:
        """One living member."""
        with redis_errors(f"entry of replica {replica_id}"):
            value = cast("bytes | None", await self._redis.get(keys.replica(replica_id)))
        return None if value is None else _decode(value)

    async def all(self) -> list[Member]:
        """Every living member, by replica id; reports the dead and forgets them."""
        with redis_errors("list of replicas"):
            known = cast("set[bytes]", await self._redis.smembers(keys.REPLICAS))
            ids = sorted(i.decode() for i in known)
            if not ids:
                return []
            values = await self._redis.mget([keys.replica(i) for i in ids])
            dead = [i for i, value in zip(ids, values, strict=True) if value is None]
            if dead:
                await self._bury(dead, "its lease expired")
        return [_decode(cast("bytes", value)) for value in values if value is not None]

    async def of_job(
        self, job_id: str, kind: ReplicaKind = ReplicaKind.REPLICA_KIND_UNSPECIFIED
    ) -> list[Member]:
        """Members that work for the job; UNSPECIFIED lists all kinds."""
        return [
            member
            for member in await self.all()
            if member.job_id == job_id and kind in (0, member.replica.kind)
        ]

    async def remove(self, replica_ids: Iterable[str], *, reason: str) -> None:
        """Forget members whose processes are known to have ended."""
        ids = list(replica_ids)
        if ids:
            with redis_errors("removal of replicas"):
                await self._redis.delete(*(keys.replica(i) for i in ids))
                await self._bury(ids, reason)

    async def _bury(self, replica_ids: Sequence[str], reason: str) -> None:
        """Emit "replica.left" once for each of a job, then forget it.

        Any router may do this at any time.
        """
        for replica_id in replica_ids:
            raw = await self._script(_LAST_WORK_OF_DEAD, replica_id)
            last: dict[str, Any] = json.loads(raw) if raw else {}
            if last.get("job_id"):
                log = EventLog(self._redis, last["job_id"], source="router")
                data = {k: last[k] for k in ("kind", "address", "seen_at")}
                event_id = f"left:{replica_id}:{last['seen_at']}"
                data = {"replica_id": replica_id, **data, "reason": reason}
                await log.emit("replica.left", data, event_id=event_id, needs_record=True)
            await self._script(_FORGET, replica_id)

    async def _script(self, script: str, replica_id: str, *args: Any) -> bytes | None:
        script_keys = (keys.replica(replica_id), keys.REPLICAS, keys.LAST_WORK)
        running = self._redis.eval(script, 3, *script_keys, replica_id, *args)
        return await cast("Awaitable[bytes | None]", running)


def _last_words(member: Member) -> str:
    replica = member.replica
    return json.dumps(
        {
            "job_id": member.job_id,
            "kind": kind_name(replica),
            "address": replica.address,
            "seen_at": replica.seen_at,
        }
    )


def _encode(member: Member) -> bytes:
    """One JSON line with the assignment, then the proto Replica."""
    head = json.dumps({"job_id": member.job_id, "policies": member.policies})
    return head.encode() + b"\n" + member.replica.SerializeToString()


def _decode(value: bytes) -> Member:
    head, _, body = value.partition(b"\n")
    document = json.loads(head)
    return Member(Replica.FromString(body), document["job_id"], tuple(document["policies"]))
