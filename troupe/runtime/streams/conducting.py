"""What the conductor says of a job's time: its limits count from when, and it is there.

The conductor knows of a pause, a full disk, a cluster's queue and of routers that were away, and
the trainer waits with limits of its own. Owns the conductor's word for it in the ledger, by the
clock of Redis. Never decides whether time is up.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from troupe.runtime.streams import keys
from troupe.runtime.streams.fencing import FENCE, Fence, fence_args, fenced
from troupe.runtime.streams.redis import WHEN_FULL, redis_errors

_FIELD = "conducted"

_NOTE = f"""{WHEN_FULL}{FENCE}
-- KEYS ledger; ARGV counted_s
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('HSET', KEYS[1], '{_FIELD}', string.format('%.6f %.6f', now - ARGV[1], now))
return 1
"""


@dataclass(frozen=True, slots=True)
class Conducting:
    """``counted_s``: for how long the job's limits had counted without a gap when a conductor last
    said so. ``silent_s``: how long ago that was; it says so every ten seconds.

    Example: ``Conducting(counted_s=310.0, silent_s=4.0)``.
    """

    counted_s: float
    silent_s: float


async def note_conducted(
    redis: Redis, job_id: str, fence: Fence | None, *, counted_s: float
) -> None:
    """Say that the job is conducted, and that its limits have counted for ``counted_s``.

    Raises:
        FencedError: another process conducts it.
    """
    with redis_errors(f"note about job {job_id}"), fenced(fence):
        note = redis.register_script(_NOTE)
        await note(
            keys=[keys.ledger(job_id), keys.epochs(job_id)], args=[counted_s, *fence_args(fence)]
        )


async def conducting(redis: Redis, job_id: str) -> Conducting | None:
    """What was said last; None where nothing was, as by a router of an older version."""
    with redis_errors(f"note about job {job_id}"):
        reading = cast("Awaitable[bytes | None]", redis.hget(keys.ledger(job_id), _FIELD))
        said = await reading
        clock: Any = await redis.time()
    if said is None:
        return None
    began_at, noted_at = map(float, said.split())
    now = clock[0] + clock[1] / 1e6
    return Conducting(noted_at - began_at, now - noted_at)
