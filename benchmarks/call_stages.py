"""Where a routed call's time goes, stage by stage: part of `benchmarks.router_overhead`.

Owns the instants that both processes note of calls made one at a time; their clocks are the
machine's monotonic one. Measures nothing by itself.
"""

import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

SERVED = (
    "router, before the call is handed to gRPC",
    "gRPC, to the servicer",
    "servicer, to the engine: decoding, rendering",
    "engine: its timer is late",
    "servicer, from the engine: encoding",
    "gRPC, to the router",
    "router, after the answer: decoding, accounts",
)
"""Of a call that a servicer answers: the plain one and the routed one."""
FLOOR = ("gRPC, to the handler", "handler: its timer is late", "gRPC, back")


class Instants:
    """Instants of calls that are made one at a time, in order."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def note(self) -> None:
        """Now."""
        self.seconds.append(time.monotonic())

    def around(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """``call``, with its begin and end noted."""

        @wraps(call)
        async def noted(*args: Any, **kwargs: Any) -> Any:
            self.note()
            answer = await call(*args, **kwargs)
            self.note()
            return answer

        return noted

    def taken(self) -> list[float]:
        """What was noted since the last time."""
        seconds, self.seconds = self.seconds, []
        return seconds


def stages_ms(
    names: Sequence[str],
    mine: Sequence[float],
    theirs: Sequence[float],
    engine_s: float,
) -> dict[str, float]:
    """Medians of each stage of calls, in milliseconds.

    ``mine`` are the instants of the calling process, half of a call's before and half after those
    of ``theirs``; in the middle stage the engine takes ``engine_s``.
    """
    num_calls = (len(mine) + len(theirs)) // (len(names) + 1)
    outer, inner = len(mine) // num_calls, len(theirs) // num_calls
    rows: list[list[float]] = []
    for call in range(num_calls):
        caller = mine[call * outer : (call + 1) * outer]
        callee = theirs[call * inner : (call + 1) * inner]
        at = [*caller[: outer // 2], *callee, *caller[outer // 2 :]]
        took = [end - begin for begin, end in itertools.pairwise(at)]
        took[len(took) // 2] -= engine_s
        rows.append(took)
    return {
        name: round(1000 * statistics.median(row[place] for row in rows), 3)
        for place, name in enumerate(names)
    }
