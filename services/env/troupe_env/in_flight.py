"""Counts requests under way, for the gauge, for the heartbeat and for the drain."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from troupe.runtime.telemetry import metrics


class InFlight:
    """Requests of one room; the gauge is the sum over all rooms of the process."""

    def __init__(self) -> None:
        self.num = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def one(self) -> Generator[None]:
        """Count a request for the block."""
        self._changed(+1)
        try:
            yield
        finally:
            self._changed(-1)

    async def wait_idle(self) -> None:
        """Return when nothing is under way."""
        await self._idle.wait()

    def _changed(self, by: int) -> None:
        self.num += by
        metrics.ENV_QUEUED.inc(by)
        if self.num:
            self._idle.clear()
        else:
            self._idle.set()
