"""The writing end of a bounded stream. Never trims an unread entry."""

from redis.asyncio import Redis

from troupe.errors import OverloadedError
from troupe.runtime.streams.redis import redis_errors
from troupe.runtime.streams.versions import RECORD_VERSION

FIELD = b"p"
"""The field of every entry: proto bytes."""

ROUND_FIELD = b"r"
"""Beside a group: the round that counts it."""

_APPEND = f"""
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return false end
return redis.call('XADD', KEYS[1], '*', 'v', '{RECORD_VERSION}', 'p', ARGV[2])
"""


class Stream:
    """A stream of proto bytes for one consumer group; acked entries are gone."""

    def __init__(self, redis: Redis, key: str, *, max_length: int) -> None:
        self._redis = redis
        self._key = key
        self._max_length = max_length
        self._append = redis.register_script(_APPEND)

    async def append(self, payload: bytes) -> str:
        """Append ``payload``; returns the id of the new entry.

        Appended at least once: a lost connection may append twice, and readers dedupe by id.

        Raises:
            OverloadedError: ``max_length`` entries wait to be read or acked.
        """
        with redis_errors(f"append to {self._key}"):
            entry_id = await self._append(keys=[self._key], args=[self._max_length, payload])
        if entry_id is None:
            raise OverloadedError(
                f"Stream {self._key} holds {self._max_length} unfinished entries; "
                "its consumers are down or too slow. Try again later."
            )
        return entry_id.decode()

    async def length(self) -> int:
        """The number of entries that wait or are being worked on."""
        with redis_errors(f"length of {self._key}"):
            return int(await self._redis.xlen(self._key))
