"""How long the caller of a request waits."""

from typing import Any, cast

import grpc.aio


def callers_s(context: grpc.aio.ServicerContext[Any, Any], otherwise_s: float) -> float:
    """Seconds until the caller's deadline; ``otherwise_s`` where it sets none."""
    left_s = cast("float | None", cast("Any", context).time_remaining())
    return otherwise_s if left_s is None else left_s
