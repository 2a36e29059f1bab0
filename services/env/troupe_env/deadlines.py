"""How long one request may take: as long as its caller waits."""

from typing import Any, cast

import grpc.aio

SPARE_S = 0.25
"""Time for the answer to reach the caller, whose deadline would otherwise come first."""


def allowed_s(context: grpc.aio.ServicerContext[Any, Any], otherwise_s: float) -> float:
    """The caller's deadline, which follows from the job's limits; ``otherwise_s`` without one."""
    left_s = cast("float | None", cast("Any", context).time_remaining())
    return otherwise_s if left_s is None else max(SPARE_S, left_s - SPARE_S)
