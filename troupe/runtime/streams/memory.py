"""Measures how much of its ``maxmemory`` a Redis uses: the one place that decides that it is full.

Owns the limits and the words. Never frees memory and never decides what waits for it.
"""

import time
from dataclasses import replace

from redis.asyncio import Redis

from troupe.runtime.disk_space import Shortage
from troupe.runtime.streams.redis import redis_errors

_FULL, _FREE = 0.9, 0.8
"""Parts of ``maxmemory``: what is open still has to fit, and who waits does not stop in turn."""


class RedisMemory:
    """The memory of a Redis, as the last ``look`` found it; never short without a ``maxmemory``.

    Example: ``await RedisMemory().look(redis)``.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self.limit_bytes = 0
        self.shortage: Shortage | None = None

    @property
    def is_short(self) -> bool:
        """Whether the last look found too little room."""
        return self.shortage is not None and not self.shortage.ended_at

    @property
    def has_room_for_waiting(self) -> bool:
        """Whether at the last look so little was used that those who wait for room go on."""
        return self._part < _FREE

    @property
    def _part(self) -> float:
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    async def look(self, redis: Redis) -> bool:
        """Measure; whether memory is short.

        Raises:
            UnavailableError: Redis does not answer.
        """
        with redis_errors("a look at its memory"):
            info = await redis.info("memory")
        not_counted = int(info.get("mem_not_counted_for_evict", 0))
        self.used_bytes = max(0, int(info["used_memory"]) - not_counted)
        self.limit_bytes = int(info.get("maxmemory", 0))
        was_short, now = self.is_short, time.time()
        if self._part >= (_FREE if was_short else _FULL):
            began_at = self.shortage.began_at if was_short and self.shortage else now
            self.shortage = Shortage(began_at, self._sentence)
        elif was_short and self.shortage is not None:
            self.shortage = replace(self.shortage, ended_at=now)
        return self.is_short

    @property
    def _sentence(self) -> str:
        used, limit = (size / 2**20 for size in (self.used_bytes, self.limit_bytes))
        return (
            f"Redis uses {used:.0f} of {limit:.0f} MiB (maxmemory): no step begins above "
            f"{_FULL:.0%}, nothing is lost, and the work goes on by itself below {_FREE:.0%}. "
            "Raise maxmemory, lower tasks_per_step or checkpoint.every, let other jobs end, or "
            "delete ended ones (`troupe delete`, `troupe jobs prune`), whose events Redis keeps."
        )
