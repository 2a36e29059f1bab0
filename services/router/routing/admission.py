"""How many Generate calls may be under way or wait: the bound of the router's own queue.

Owns the line of those who wait for room. Never decides which replica answers.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from troupe.errors import OverloadedError
from troupe.telemetry import metrics


class Admission:
    """A bounded line, first come, first served."""

    def __init__(self, job_id: str, *, max_calls: int) -> None:
        self._job_id = job_id
        self._max_calls = max_calls
        self._num_calls = 0
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._waiting = metrics.ROUTER_WAITING.labels(job_id)

    @property
    def num_waiting(self) -> int:
        """Calls that wait for a replica with room."""
        return len(self._line)

    @contextmanager
    def call(self) -> Generator[None]:
        """One call, from its admission to its answer; raises OverloadedError when full."""
        if self._num_calls >= self._max_calls:
            metrics.ROUTER_REFUSED.labels(self._job_id).inc()
            raise OverloadedError(
                f"{self._num_calls} Generate calls of job '{self._job_id}' are under way or wait "
                "in this router, and it takes no more (TROUPE_ROUTER_GENERATE_CALLS). Try again "
                "later, lower limits.episodes_in_flight, or add replicas."
            )
        self._num_calls += 1
        try:
            yield
        finally:
            self._num_calls -= 1

    async def wait(self, timeout_s: float) -> None:
        """Until `leave` calls this place up, or ``timeout_s`` at the latest."""
        place = asyncio.get_running_loop().create_future()
        self._line[place] = None
        self._waiting.inc()
        try:
            async with asyncio.timeout(timeout_s):
                await place
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()  # was called up and does not go: the next may
            raise
        finally:
            self._line.pop(place, None)
            self._waiting.dec()

    def leave(self) -> None:
        """A replica has room again: call up who waits longest."""
        if self._line:
            place, _ = self._line.popitem(last=False)
            if not place.done():
                place.set_result(None)
