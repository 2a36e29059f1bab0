"""The retry loop and its growing pauses, for every room. Each caller sets its own limit.

Limits:
    Ticket, evaluated task: ``limits.max_attempts`` of the spec (router: play/workers.py;
        troupe/evaluation/runner.py). What a player's machine lacks: limits.step_timeout_s, divided
        by the deliveries that a ticket has (router: play/workers.py).
    gRPC call, same address: ``retry_for_s`` of ``Client``, 2 s unless given (``RouterClient`` and
        routed calls: 0); ``MAX_LOST_ANSWERS`` for lost answers (troupe/clients/channel.py).
    gRPC call, another replica: until the call's timeout (router: play/routing/failover.py).
    REST call: ``retry_for_s`` of the client (troupe/clients/rest/retry.py).
    OpenAI-compatible server: ``max_attempts`` of ``ChatClient``, 6 unless given
        (troupe/clients/chat.py).
    Redis command: ``retry_for_s`` of ``connect``, 15 s unless given
        (troupe/runtime/streams/redis.py).
    Work that outlives Redis: troupe/runtime/streams/retry.py; a checkpoint: limits.step_timeout_s
        (trainer: checkpoint/checkpointing.py).
    Weight push: ``MAX_REJECTIONS`` and limits.startup_timeout_s (trainer: publish/publisher.py).
    Start of a served bundle: ``INSTALL_S`` and a minute (router: serve/bundled.py).
    Kubernetes write: ``_TRIES`` (router: cluster/writer.py).

Owns schedule and loop. The caller decides which failures are transient and whether a call may run
twice. Polling is not a retry.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from troupe.errors import TroupeError

_T = TypeVar("_T")

STEADY = (1.0, 1.0)
"""No jitter: for one process that waits for another, where no crowd retries at once."""
_MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds that double from ``first_s`` up to ``longest_s``.

    Each is multiplied by a random number between the two bounds of ``jitter``, so that callers that
    failed together do not retry together.

    Example: ``Backoff(0.05, 1.0).pause_s(3)`` is between 0.1 and 0.3.
    """

    first_s: float
    longest_s: float
    jitter: tuple[float, float] = (0.5, 1.5)

    def pause_s(self, num_failures: int, *, at_least_s: float = 0.0) -> float:
        """Seconds to wait after ``num_failures`` consecutive failures (from 1).

        ``at_least_s`` is the minimum before jitter.
        """
        doublings = min(num_failures - 1, _MAX_DOUBLINGS)
        pause_s = max(at_least_s, min(self.first_s * 2.0**doublings, self.longest_s))
        return pause_s * random.uniform(*self.jitter)


def is_retryable(error: Exception) -> bool:
    """Whether the error declares that the same call may succeed later."""
    return isinstance(error, TroupeError) and error.retryable


def _no_wish(_: Exception) -> float:
    return 0.0


async def retry(
    attempt: Callable[[], Awaitable[_T]],
    backoff: Backoff,
    *,
    within_s: float = math.inf,
    max_attempts: float = math.inf,
    may_pass: Callable[[Exception], bool] = is_retryable,
    asks_for_s: Callable[[Exception], float] = _no_wish,
) -> _T:
    """Return the result of ``attempt``, retried while that may help; else raise its last error.

    No pause begins that would end more than ``within_s`` after the call; each attempt bounds its
    own time. ``asks_for_s`` is the pause that a failure requests; the longer of it and the pause of
    ``backoff`` applies. A cancellation is never retried.
    """
    now = asyncio.get_running_loop().time
    give_up_at = now() + within_s
    num_failures = 0
    while True:
        try:
            return await attempt()
        except Exception as error:
            num_failures += 1
            pause_s = max(asks_for_s(error), backoff.pause_s(num_failures))
            is_late = num_failures >= max_attempts or now() + pause_s >= give_up_at
            if is_late or not may_pass(error):
                raise
        await asyncio.sleep(pause_s)
