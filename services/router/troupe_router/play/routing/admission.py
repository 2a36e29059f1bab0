"""Bounds the Generate calls that are in progress or waiting: the router's own queue.

Owns the lines of waiting calls. Never decides which replica answers.
"""

import asyncio
from collections import OrderedDict
from types import TracebackType
from typing import Self

from troupe.errors import OverloadedError
from troupe.runtime.telemetry import metrics

_LONGEST_WAIT_S = 5.0
_LOOKS_PER_S = 200


class Line:
    """Calls that wait for a replica with room: first come, first served."""

    def __init__(self) -> None:
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    @property
    def num_waiting(self) -> int:
        """Calls that wait for a replica with room."""
        return len(self._line)

    async def wait(self, timeout_s: float) -> None:
        """Wait until `leave` wakes this place, at most ``timeout_s``.

        A waiting call also looks again periodically, since a replica with room may join: the longer
        the line, the less often.
        """
        look_s = max(_LONGEST_WAIT_S, len(self._line) / _LOOKS_PER_S)
        timeout_s = min(timeout_s, look_s)
        place = asyncio.get_running_loop().create_future()
        self._line[place] = None
        try:
            async with asyncio.timeout(timeout_s):
                await place
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()  # was woken but is cancelled: wake the next
            raise
        finally:
            self._line.pop(place, None)

    def leave(self) -> None:
        """A replica has room again: wake the call that has waited longest."""
        if self._line:
            place, _ = self._line.popitem(last=False)
            if not place.done():
                place.set_result(None)


class Admission(Line):
    """The bounded line of the Generate calls: ``with`` it each is under way.

    Entering it raises OverloadedError when it is full.
    """

    def __init__(self, job_id: str, *, max_calls: int) -> None:
        super().__init__()
        self._job_id = job_id
        self._max_calls = max_calls
        self._num_calls = 0
        self._waiting = metrics.ROUTER_WAITING.labels(job_id)
        metrics.start_at_zero(metrics.ROUTER_REFUSED, [job_id])

    def __enter__(self) -> Self:
        if self._num_calls >= self._max_calls:
            metrics.ROUTER_REFUSED.labels(self._job_id).inc()
            raise OverloadedError(
                f"{self._num_calls} Generate calls of job '{self._job_id}' are under way or wait "
                "in this router, and it takes no more (TROUPE_ROUTER_GENERATE_CALLS). Try again "
                "later, lower limits.episodes_in_flight, or add replicas."
            )
        self._num_calls += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._num_calls -= 1

    async def wait(self, timeout_s: float) -> None:
        """Wait as in any line, and show it in the metrics."""
        self._waiting.inc()
        try:
            await super().wait(timeout_s)
        finally:
            self._waiting.dec()
