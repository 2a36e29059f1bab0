"""The reading end of a stream: consumer groups, claiming from dead readers, parking bad entries.

Owns delivery: an entry stays pending until it is acked, and is delivered again when its consumer
dies. Never knows what a payload means.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis.exceptions as rex
from redis.asyncio import Redis

from troupe.runtime.streams import keys
from troupe.runtime.streams.fencing import FENCE, Fence, fence_args, fenced
from troupe.runtime.streams.redis import MAX_BLOCK_S, redis_errors
from troupe.runtime.streams.stream import FIELD, ROUND_FIELD
from troupe.runtime.streams.versions import check_version

_ACK = f"""{FENCE}
for i = 2, #ARGV do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return #ARGV - 1
"""

# ARGV group consumer first last ids: in the order of the stream, with spaces between them. Two
# commands and one argument for all: with ten thousand entries at work, one each would hold up
# everybody else, here and there. ARGV[6] is their new idle time, milliseconds. A stream that is
# gone holds nothing.
_KEEP = """
local wanted, ours = {}, {}
for id in string.gmatch(ARGV[5], '%S+') do wanted[id] = true end
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[4], 1000000, ARGV[2])
if held.err then
  if string.find(held.err, 'NOGROUP', 1, true) then return 0 end
  return held
end
for _, entry in ipairs(held) do
  if wanted[entry[1]] then ours[#ours + 1] = entry[1] end
end
if #ours == 0 then return 0 end
for _, option in ipairs({'IDLE', ARGV[6], 'JUSTID'}) do ours[#ours + 1] = option end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(ours))
return #ours - 3
"""
_KEPT_AT_ONCE = 1000
_RELEASED_MS = 24 * 3600 * 1000
"""Longer than any ``claim_idle_s``."""
_LOOK_S = 0.2
"""Seconds between two checks for a stream that does not exist yet."""

_PARK = f"""{FENCE}
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) > 0 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*', 'p', ARGV[3], 'reason', ARGV[4],
             'entry_id', ARGV[2], 'attempts', ARGV[5])
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One delivery. ``attempts`` counts deliveries, this one included.

    ``is_exhausted`` says that it was delivered more than ``max_attempts`` times: its readers died
    or gave up on it, so park it (or drop its ticket) instead of trying again. ``round_id`` is the
    round that a group was counted in, whatever became of its payload; empty for other records.
    """

    id: str
    payload: bytes
    attempts: int
    is_exhausted: bool = False
    round_id: str = ""


class Consumer:
    """One named reader of one consumer group.

    A reader that returns under its old name first gets what it held. Entries that another reader
    held for ``claim_idle_s`` without ``keep`` are claimed; None claims none. A stream has one
    group: an ack deletes the entry. ``max_attempts`` 0 never calls an entry exhausted. ``fence`` is
    for a stream that belongs to a role: acks of a superseded reader are refused. ``makes_stream``
    False: only the writer creates the stream, so a reader that does not know yet that its job ended
    can't create it again.
    """

    def __init__(
        self,
        redis: Redis,
        key: str,
        group: str,
        consumer: str,
        *,
        claim_idle_s: float | None,
        max_attempts: int,
        fence: Fence | None = None,
        makes_stream: bool = True,
    ) -> None:
        self._redis = redis
        self._makes_stream = makes_stream
        self._fence = fence
        self._epochs = keys.epochs(fence.job_id) if fence is not None else key
        self._key = key
        self._group = group
        self._consumer = consumer
        self._claim_idle_ms = None if claim_idle_s is None else max(1, round(claim_idle_s * 1000))
        self._max_attempts = max_attempts
        self._backlog_after: bytes | None = b"0"
        self._claim_after: bytes = b"0-0"
        self._ack = redis.register_script(_ACK)
        self._keep = redis.register_script(_KEEP)
        self._park = redis.register_script(_PARK)

    async def read(self, *, count: int, block_s: float) -> list[Entry]:
        """Up to ``count`` entries: this reader's pending ones, those of dead readers, new ones.

        Waits at most ``block_s`` for the first one; an empty list means that there is none.

        Raises:
            NewerRecordError: an entry is of a newer version; it stays pending, and so do those
                that came with it.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + block_s
        while True:
            left_s = max(0.0, deadline - now())
            with redis_errors(f"read of {self._key}"):
                try:
                    entries = await self._read_once(count, min(left_s, MAX_BLOCK_S))
                except rex.ResponseError as error:
                    if not str(error).startswith(("NOGROUP", "UNBLOCKED")):
                        raise
                    if not await self._create_group():
                        await asyncio.sleep(min(_LOOK_S, max(0.0, deadline - now())))
                        if now() >= deadline:
                            return []
                    continue
            if entries or now() >= deadline:
                return entries

    def reread(self) -> None:
        """Make the next reads return again everything that this consumer holds.

        Redis counts an entry as delivered even if the connection broke before its reader got it.
        """
        self._backlog_after = b"0"

    async def ack(self, *entry_ids: str) -> None:
        """Forget these entries: their effect is stored. Idempotent."""
        if entry_ids:
            with redis_errors(f"ack on {self._key}"), fenced(self._fence):
                await self._ack(
                    keys=[self._key, self._epochs],
                    args=[self._group, *entry_ids, *fence_args(self._fence)],
                )

    async def keep(self, *entry_ids: str) -> None:
        """Reset the idle time of these entries, which are still being worked on; claims none.

        Entries that another consumer claimed meanwhile stay with it.
        """
        await self._set_idle(entry_ids, 0)

    async def release(self, *entry_ids: str) -> None:
        """Release these entries: the next reader may claim them at once.

        This does not count as a delivery. Entries of another consumer stay with it.
        """
        await self._set_idle(entry_ids, _RELEASED_MS)

    async def _set_idle(self, entry_ids: Iterable[str], idle_ms: int) -> None:
        ordered = sorted(entry_ids, key=_place)
        for start in range(0, len(ordered), _KEPT_AT_ONCE):
            batch = ordered[start : start + _KEPT_AT_ONCE]
            with redis_errors(f"keep on {self._key}"):
                await self._keep(
                    keys=[self._key],
                    args=[
                        self._group,
                        self._consumer,
                        batch[0],
                        batch[-1],
                        " ".join(batch),
                        idle_ms,
                    ],
                )

    async def park(self, entry: Entry, reason: str) -> None:
        """Move an entry that nobody can handle to the dead stream, with the reason. Idempotent."""
        with redis_errors(f"park on {self._key}"), fenced(self._fence):
            await self._park(
                keys=[self._key, keys.dead(self._key), self._epochs],
                args=[
                    self._group,
                    entry.id,
                    entry.payload,
                    reason,
                    entry.attempts,
                    *fence_args(self._fence),
                ],
            )

    async def _read_once(self, count: int, block_s: float) -> list[Entry]:
        while self._backlog_after is not None:
            raw = await self._read_group(count, self._backlog_after, None)
            entries = await self._redelivered(raw)
            self._backlog_after = raw[-1][0] if raw else None
            if entries:
                return entries
        if entries := await self._claim(count):
            return entries
        raw = await self._read_group(count, b">", block_s)
        return await self._entries(raw, {})

    async def _read_group(self, count: int, after: bytes, block_s: float | None) -> list[Any]:
        block_ms = None if block_s is None or block_s <= 0 else max(1, round(block_s * 1000))
        streams: Any = await self._redis.xreadgroup(
            self._group, self._consumer, {self._key: after}, count=count, block=block_ms
        )
        return streams[0][1] if streams else []

    async def _claim(self, count: int) -> list[Entry]:
        if self._claim_idle_ms is None:
            return []
        answer = await self._redis.xautoclaim(
            self._key,
            self._group,
            self._consumer,
            self._claim_idle_ms,
            start_id=self._claim_after,
            count=count,
        )
        entries = await self._redelivered(answer[1])
        self._claim_after = answer[0]
        return entries

    async def _redelivered(self, raw: list[Any]) -> list[Entry]:
        """Entries with their delivery counts; those deleted while pending are acked away."""
        if not raw:
            return []
        async with self._redis.pipeline(transaction=False) as pipe:
            for entry_id, _ in raw:
                pipe.xpending_range(self._key, self._group, min=entry_id, max=entry_id, count=1)
            counts = [int(p[0]["times_delivered"]) if p else 1 for p in await pipe.execute()]
        return await self._entries(raw, {pair[0]: n for pair, n in zip(raw, counts, strict=True)})

    async def _entries(self, raw: Iterable[Any], attempts: dict[bytes, int]) -> list[Entry]:
        entries: list[Entry] = []
        for entry_id, fields in raw:
            number = attempts.get(entry_id, 1)
            is_exhausted = 0 < self._max_attempts < number
            if fields:
                check_version(fields, f"entry {entry_id.decode()} of {self._key}")
            if not fields:
                await self.ack(entry_id.decode())
            elif FIELD not in fields:
                malformed = Entry(entry_id.decode(), repr(fields).encode(), number, True)
                await self.park(malformed, "the entry has no payload field")
            else:
                round_id = fields.get(ROUND_FIELD, b"").decode()
                entries.append(
                    Entry(entry_id.decode(), fields[FIELD], number, is_exhausted, round_id)
                )
        return entries

    async def _create_group(self) -> bool:
        """Whether there is one now: without the stream there can be none."""
        try:
            await self._redis.xgroup_create(
                self._key, self._group, id="0", mkstream=self._makes_stream
            )
        except rex.ResponseError as error:
            if "requires the key to exist" in str(error):
                return False
            if not str(error).startswith("BUSYGROUP"):
                raise
        return True


def _place(entry_id: str) -> tuple[int, int]:
    """The position of an entry in its stream."""
    instant, _, number = entry_id.partition("-")
    return int(instant), int(number or 0)
