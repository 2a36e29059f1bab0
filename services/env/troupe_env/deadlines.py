"""How long one request may take: as long as its caller waits."""

from typing import Any

import grpc.aio

from troupe.runtime.serving.deadlines import callers_s

SPARE_S = 0.25
"""Time for the answer to reach the caller, whose deadline would otherwise come first."""


def allowed_s(context: grpc.aio.ServicerContext[Any, Any], otherwise_s: float) -> float:
    """The caller's deadline, which follows from the job's limits; ``otherwise_s`` without one."""
    return max(SPARE_S, callers_s(context, otherwise_s + SPARE_S) - SPARE_S)
