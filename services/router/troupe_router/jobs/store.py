"""Job records in Redis: create, read, and the only way to change a job's state.

Owns the record hashes, the job index and idempotency keys, and that ``job.json`` in the run folder
follows each change. Never decides what a job does next.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from redis.asyncio import Redis

from troupe.errors import ConflictError, FencedError, NotFoundError
from troupe.runtime.streams import keys
from troupe.runtime.streams.fencing import FENCE, Fence, fence_args, fenced
from troupe.runtime.streams.redis import WHEN_FULL
from troupe.runtime.streams.versions import NewerRecordError
from troupe.runtime.telemetry.logging import get_logger
from troupe_router.jobs.job_file import write_job
from troupe_router.jobs.record import JobRecord, record_from_fields
from troupe_router.jobs.state import FINISHED, JobState, before

_log = get_logger(__name__)

IDEMPOTENCY_TTL_S = 24 * 3600
_PAGE = 100

_TRANSITION = f"""{WHEN_FULL}{FENCE}
-- KEYS job, then those that the change deletes; ARGV allowed states (',a,b,'), field value ...
local now = redis.call('HGET', KEYS[1], 'state')
if not now then return 'absent' end
if not string.find(ARGV[1], ',' .. now .. ',', 1, true) then return now end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return ''
"""
"""Changes the record when its state is an allowed one; else returns the state that forbids it."""

_SET_PRIORITY = """
local now = redis.call('HGET', KEYS[1], 'state')
if not now then return 'absent' end
if now ~= 'queued' and now ~= 'paused' then return now end
redis.call('HSET', KEYS[1], 'priority', ARGV[1])
return ''
"""
"""Sets the priority of a waiting job; else returns the state that forbids it."""

_SET = f"""{WHEN_FULL}
if redis.call('HEXISTS', KEYS[1], 'state') == 0 then return 'absent' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ''
"""
"""Sets one field of a record that is there: a lost record must not come back in part."""

_ADD = """
redis.call('ZADD', KEYS[2], 'NX', ARGV[1], ARGV[2])
if redis.call('HEXISTS', KEYS[1], 'state') == 1 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
return 1
"""
"""Writes a new or lost record and lists it; 0 where it is there."""

_REMOVE = """
local now = redis.call('HGET', KEYS[1], 'state')
if not now then return 'absent' end
if not string.find(ARGV[1], ',' .. now .. ',', 1, true) then return now end
redis.call('DEL', KEYS[1])
return ''
"""
"""DEL when the state is in ARGV[1]; else the state that forbids it."""

_NOTE = "note:"
TRACKED_NOTE = "tracked:"
"""Prefix of the notes that count the lines each tracker was given; a resumed job keeps them."""


class JobStore:
    """Every router's view of the jobs."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._newer: set[bytes] = set()
        self.unwritten: set[str] = set()
        """Jobs whose ``job.json`` could not be written; ``write_file`` tries again."""
        self._writing = asyncio.Lock()

    async def create(self, record: JobRecord) -> None:
        """Add a new job; one that is there stays as it is."""
        await self.restore(record, {})
        await self.write_file(record.job_id)

    async def restore(self, record: JobRecord, tracked: Mapping[str, int]) -> bool:
        """Add a job that its run folder has and Redis lost; False where it is there.

        ``job.json`` is left as it is.
        """
        notes = {f"{_NOTE}{TRACKED_NOTE}{place}": str(n) for place, n in tracked.items()}
        fields = {**record.to_fields(), **notes}
        flat = [part for pair in fields.items() for part in pair]
        place = (str(record.created_at), record.job_id)
        adding = self._redis.eval(_ADD, 2, keys.job(record.job_id), keys.JOBS, *place, *flat)
        return await cast("Awaitable[int]", adding) == 1

    async def write_file(self, job_id: str) -> None:
        """Let ``job.json`` say what Redis holds, as long as there is the job and its run folder.

        Two processes may write at once: each looks again after its write, so the last file is of
        the last state.
        """
        written: tuple[JobRecord, dict[str, int]] | None = None
        while True:
            reading = self._redis.hgetall(keys.job(job_id))
            fields = await cast("Awaitable[dict[bytes, bytes]]", reading)
            if b"state" not in fields:
                break
            present = record_from_fields(fields), _tracked(fields)
            if present == written:
                break
            try:
                async with self._writing:
                    await asyncio.to_thread(write_job, *present)
            except FileNotFoundError:
                break
            except (OSError, ValidationError) as error:
                self.unwritten.add(job_id)
                _log.error("job_file.not_written", job_id=job_id, error=str(error))
                return
            written = present
        self.unwritten.discard(job_id)

    async def find(self, job_id: str) -> JobRecord | None:
        """The record, or None."""
        reading = self._redis.hgetall(keys.job(job_id))
        fields = await cast("Awaitable[dict[bytes, bytes]]", reading)
        return record_from_fields(fields) if fields else None

    async def get(self, job_id: str) -> JobRecord:
        """The record; raises NotFoundError."""
        record = await self.find(job_id)
        if record is None:
            raise NotFoundError(f"no job '{job_id}'; GET /v1/jobs lists all jobs")
        return record

    async def all(self) -> list[JobRecord]:
        """Every job, oldest first."""
        ids = cast("list[bytes]", await self._redis.zrange(keys.JOBS, 0, -1))
        return await self.read([job_id.decode() for job_id in ids])

    async def page(
        self, *, before: tuple[float, str] | None, limit: int, states: Collection[str] = ()
    ) -> list[JobRecord]:
        """Up to ``limit`` jobs in ``states`` (none: all) after the place ``before``, newest first.

        A job's place is when it was made, and its id: jobs may be of one instant.
        """
        records: list[JobRecord] = []
        highest = "+inf" if before is None else repr(before[0])
        start = 0
        while len(records) < limit:
            ids = cast(
                "list[bytes]",
                await self._redis.zrevrangebyscore(
                    keys.JOBS, highest, "-inf", start=start, num=_PAGE
                ),
            )
            batch = await self.read([job_id.decode() for job_id in ids])
            later = [r for r in batch if before is None or (r.created_at, r.job_id) < before]
            records += [r for r in later if not states or r.state in states]
            start += len(ids)
            if len(ids) < _PAGE:
                break
        return records[:limit]

    async def read(self, job_ids: Sequence[str]) -> list[JobRecord]:
        """The records of these jobs, of those that there are."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hgetall(keys.job(job_id))
            hashes = cast("list[dict[bytes, bytes]]", await pipe.execute())
        return [record for fields in hashes if fields and (record := self._readable(fields))]

    def _readable(self, fields: Mapping[bytes, bytes]) -> JobRecord | None:
        """The record; None for a newer version's, which must not hide the others."""
        try:
            return record_from_fields(fields)
        except NewerRecordError as error:
            if (job_id := fields[b"job_id"]) not in self._newer:
                self._newer.add(job_id)
                _log.warning("job.of_newer_version", job_id=job_id.decode(), why=error.message)
            return None

    async def states(self, job_ids: Sequence[str] | None = None) -> dict[str, JobState]:
        """The state of each of these jobs that there is, by its id; of all, oldest first."""
        if job_ids is None:
            ids = cast("list[bytes]", await self._redis.zrange(keys.JOBS, 0, -1))
            job_ids = [job_id.decode() for job_id in ids]
        found = await self._field("state", job_ids)
        return {job_id: cast("JobState", state.decode()) for job_id, state in found.items()}

    async def pinned(self, job_ids: Collection[str]) -> set[str]:
        """Those of these jobs that are pinned."""
        found = await self._field("is_pinned", job_ids)
        return {job_id for job_id, text in found.items() if text == b"True"}

    async def ended_at(self, job_ids: Collection[str]) -> dict[str, float]:
        """When each of these jobs that there is ended, by its id; 0 for one that has not."""
        found = await self._field("ended_at", job_ids)
        return {job_id: float(text) for job_id, text in found.items()}

    async def spec_texts(self, job_ids: Collection[str]) -> list[str]:
        """The specs of these jobs as JSON, a newer version's too."""
        return [text.decode() for text in (await self._field("spec", job_ids)).values()]

    async def unfinished_ids(self) -> list[str]:
        """Names of the jobs that some router must conduct, a newer version's too; oldest first."""
        idle = {*FINISHED, "paused"}
        return [job_id for job_id, state in (await self.states()).items() if state not in idle]

    async def unfinished(self) -> list[JobRecord]:
        """Jobs that a router of this version must conduct, oldest first."""
        return await self.read(await self.unfinished_ids())

    async def transition(
        self,
        job_id: str,
        to: JobState,
        *,
        reason: str = "",
        fence: Fence | None = None,
        deleting: Sequence[str] = (),
    ) -> JobRecord:
        """Move a job to ``to``, and delete the keys ``deleting`` of it, as one change.

        Raises:
            ConflictError: the state table refuses it.
            FencedError: another router has taken over from the one with this ``fence``.
        """
        now = time.time()
        changes = {"state": to, "reason": reason}
        if to == "launching":
            changes["started_at"] = str(now)
        if to in FINISHED:
            changes["ended_at"] = str(now)
        try:
            await self._change(job_id, to, changes, fence, deleting)
        except (ConflictError, FencedError) as error:
            # A change whose answer was lost is sent again, and then refused.
            record = await self.find(job_id)
            is_ended = record is not None and record.ended_at == now
            is_there = record is not None and record.state == to and fence is not None
            if not (is_ended if isinstance(error, FencedError) else is_there):
                raise
            await self.write_file(job_id)
        return await self.get(job_id)

    async def set_step(self, job_id: str, step: int) -> None:
        """Show ``step`` as the number of learned steps; nothing for a job that is gone."""
        await self._set(job_id, "step", str(step))
        await self.write_file(job_id)

    async def set_pinned(self, job_id: str, is_pinned: bool) -> JobRecord:
        """Let retention keep the run folder, or not; raises NotFoundError."""
        await self._set(job_id, "is_pinned", str(is_pinned))
        record = await self.get(job_id)
        await self.write_file(job_id)
        return record

    async def reopen(self, record: JobRecord) -> JobRecord:
        """Queue a paused or finished job again with the spec and life of ``record``."""
        await self._change(record.job_id, "queued", record.to_fields())
        return await self.get(record.job_id)

    async def set_priority(self, job_id: str, priority: int) -> JobRecord:
        """Change the priority of a waiting job; raises ConflictError for any other."""
        running = self._redis.eval(_SET_PRIORITY, 1, keys.job(job_id), str(priority))
        state = await self._verdict(job_id, running)
        if state:
            raise ConflictError(
                f"job '{job_id}' is {state}; the priority of a queued or paused job can be changed"
            )
        await self.write_file(job_id)
        return await self.get(job_id)

    async def remove(self, job_id: str) -> None:
        """Forget a job that has ended or is paused; raises ConflictError for any other."""
        allowed = "," + ",".join([*FINISHED, "paused"]) + ","
        state = await self._verdict(job_id, self._redis.eval(_REMOVE, 1, keys.job(job_id), allowed))
        if state:
            raise ConflictError(f"job '{job_id}' is {state}; cancel it before you delete it")
        await self._redis.zrem(keys.JOBS, job_id)
        await self._redis.delete(keys.events(job_id), keys.event_ids(job_id))

    async def note(self, job_id: str, name: str, value: Any) -> None:
        """Remember a JSON value beside the record: what its conductor must not forget."""
        await self._set(job_id, _NOTE + name, json.dumps(value))

    async def notes(self, job_id: str) -> dict[str, Any]:
        """All that was noted."""
        reading = self._redis.hgetall(keys.job(job_id))
        fields = await cast("Awaitable[dict[bytes, bytes]]", reading)
        prefix = _NOTE.encode()
        return {
            key[len(prefix) :].decode(): json.loads(value)
            for key, value in fields.items()
            if key.startswith(prefix)
        }

    async def forget_notes(self, job_id: str, *names: str) -> None:
        """Drop these notes."""
        fields = [_NOTE + name for name in names]
        if fields:
            await self._redis.hdel(keys.job(job_id), *fields)

    async def state(self, job_id: str) -> JobState | None:
        """The job's state now, or None when there is no such job."""
        reading = self._redis.hget(keys.job(job_id), "state")
        value = await cast("Awaitable[bytes | None]", reading)
        return None if value is None else cast("JobState", value.decode())

    async def claim_key(self, key: str, body_digest: str, job_id: str) -> str:
        """Bind an Idempotency-Key to ``job_id``; the job that the key stands for.

        Raises ConflictError when the key was used with another body.
        """
        name = keys.idempotency(key)
        value = json.dumps({"digest": body_digest, "job_id": job_id})
        if await self._redis.set(name, value, nx=True, ex=IDEMPOTENCY_TTL_S):
            return job_id
        return await self.job_of_key(key, body_digest) or job_id

    async def job_of_key(self, key: str, body_digest: str) -> str | None:
        """The job that a key was used for, or None; raises ConflictError for another body."""
        stored = cast("bytes | None", await self._redis.get(keys.idempotency(key)))
        if stored is None:
            return None
        used = json.loads(stored)
        if used["digest"] != body_digest:
            raise ConflictError(
                f"Idempotency-Key '{key.partition(':')[2]}' was used with another body "
                f"(job {used['job_id']}); send a new key with a new body"
            )
        return str(used["job_id"])

    async def _change(
        self,
        job_id: str,
        to: JobState,
        changes: Mapping[str, str],
        fence: Fence | None = None,
        deleting: Sequence[str] = (),
    ) -> None:
        allowed = "," + ",".join(before(to)) + ","
        names = [keys.job(job_id), *deleting, keys.epochs(job_id)]
        flat = [part for pair in changes.items() for part in pair]
        args = [allowed, *flat, *map(str, fence_args(fence))]
        with fenced(fence):
            running = self._redis.eval(_TRANSITION, len(names), *names, *args)
            state = await self._verdict(job_id, running)
        if state:
            raise ConflictError(f"job '{job_id}' is {state}; it cannot become {to}")
        await self.write_file(job_id)

    async def _set(self, job_id: str, field: str, value: str) -> None:
        setting = self._redis.eval(_SET, 1, keys.job(job_id), field, value)
        await cast("Awaitable[bytes]", setting)

    async def _field(self, name: str, job_ids: Collection[str]) -> dict[str, bytes]:
        """One field of the records that there are, by job, in the order of ``job_ids``."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hget(keys.job(job_id), name)
            answers = cast("list[bytes | None]", await pipe.execute())
        each = zip(job_ids, answers, strict=True)
        return {job_id: answer for job_id, answer in each if answer}

    async def _verdict(self, job_id: str, running: Any) -> str:
        """The state that forbade what a script was to do, or ""; raises NotFoundError."""
        answer = await cast("Awaitable[bytes]", running)
        if answer == b"absent":
            raise NotFoundError(f"no job '{job_id}'; GET /v1/jobs lists all jobs")
        return answer.decode()


def _tracked(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    """Lines that each tracker was given, by its place."""
    prefix = (_NOTE + TRACKED_NOTE).encode()
    return {
        name.removeprefix(prefix).decode(): int(value)
        for name, value in fields.items()
        if name.startswith(prefix)
    }
