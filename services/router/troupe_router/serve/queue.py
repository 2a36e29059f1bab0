"""Bounds the requests that are answered or wait, and lets the last ones end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from troupe.errors import OverloadedError, UnavailableError
from troupe.runtime.telemetry import metrics


class RequestQueue:
    """At most ``max_running`` requests at once, and ``max_waiting`` that wait, in order."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._free = asyncio.Semaphore(max_running)
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._num_inside = 0
        self._num_running = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it.

        Raises OverloadedError when too many wait, UnavailableError after ``drain``.
        """
        if self._is_closed:
            raise UnavailableError("this process is stopping; ask again in a moment")
        if self._num_inside >= self._max_running + self._max_waiting:
            raise OverloadedError(
                f"{self._num_running} requests are being answered and "
                f"{self._num_inside - self._num_running} wait, which is the limit "
                "(TROUPE_SERVE_MAX_RUNNING, TROUPE_SERVE_MAX_WAITING); ask again later"
            )
        self._num_inside += 1
        self._idle.clear()
        try:
            self._count()
            async with self._free:
                self._num_running += 1
                try:
                    self._count()
                    yield
                finally:
                    self._num_running -= 1
        finally:
            self._num_inside -= 1
            self._count()
            if not self._num_inside:
                self._idle.set()

    @property
    def is_closed(self) -> bool:
        """Whether new requests are refused."""
        return self._is_closed

    async def drain(self) -> None:
        """Refuse new requests, and wait until the last one is answered."""
        self._is_closed = True
        await self._idle.wait()

    def _count(self) -> None:
        metrics.SERVE_IN_FLIGHT.set(self._num_running)
        metrics.SERVE_WAITING.set(self._num_inside - self._num_running)
