"""Fails over: asks one replica after another until one answers or time is up.

Owns the retries of calls that any replica may answer, their pauses, and what a failure means for
a replica. The caller decides which one is asked.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from troupe.errors import DeadlineError, TroupeError, UnavailableError
from troupe.retry import Backoff
from troupe.tasks.program_ends import end_of_error
from troupe_router.play.routing.choose import Affinity
from troupe_router.play.routing.fleet import ReplicaConnection, UnlessClosed

_BACKOFF = Backoff(0.01, 1.0)
_LOOKS_PER_S = 1000
"""How often all callers without a replica look again, together."""
_T = TypeVar("_T")


class Pauses:
    """The pauses of all callers of a port that no replica could answer.

    The more callers, the longer each one pauses: ten thousand that look again each second would
    leave the event loop no time to hear from the replicas that they wait for.
    """

    def __init__(self) -> None:
        self._num_pausing = 0

    def at_least_s(self, pause_s: float) -> float:
        """The pause of one more caller that would pause ``pause_s``."""
        return max(pause_s, self._num_pausing / _LOOKS_PER_S)

    async def pause(self, pause_s: float) -> None:
        """Sleep."""
        self._num_pausing += 1
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._num_pausing -= 1


@dataclass(frozen=True, slots=True)
class Pick:
    """The replica to ask, and for which version.

    Without a connection: none can answer, or (``is_full``) those that could have no room.
    """

    connection: ReplicaConnection | None = None
    affinity: Affinity = "miss"
    policy_version: int = 0
    is_full: bool = False


async def until_answered(
    pick: Callable[[frozenset[str]], Pick],
    ask: Callable[[ReplicaConnection, Pick, float], Awaitable[_T]],
    *,
    timeout_s: float,
    missing: str,
    pauses: Pauses,
    refresh: Callable[[], Awaitable[None]],
    wait_for_room: Callable[[float], Awaitable[None]] | None = None,
    asks_late_for_s: float = math.inf,
) -> _T:
    """Pick and ask until an answer, an error that no replica can mend, or ``timeout_s``.

    Each failure names a replica to avoid; when all have failed, the pause before the next round
    grows and is jittered, so that callers who were refused together do not come back together.
    After ``asks_late_for_s`` nobody is asked again because a replica took too long.
    """
    deadline, late_until = (time.monotonic() + s for s in (timeout_s, asks_late_for_s))
    avoid: frozenset[str] = frozenset()
    num_rounds = 0
    last: TroupeError | None = None
    while (left_s := deadline - time.monotonic()) > 0:
        picked = pick(avoid)
        if picked.connection is None and not picked.is_full:
            await refresh()
            picked = pick(avoid)
        if picked.is_full and wait_for_room is not None:
            await wait_for_room(left_s)
            continue
        if picked.connection is not None:
            try:
                return await _ask_one(picked.connection, picked, ask, left_s)
            except TroupeError as error:
                if not error.retryable or error.ends_episode:
                    raise
                # The last try is cut short: that says less than how the program failed before.
                if last is None or not (end_of_error(last) and isinstance(error, DeadlineError)):
                    last = error
                if isinstance(error, DeadlineError) and time.monotonic() >= late_until:
                    break
            avoid |= {picked.connection.replica_id}
            await refresh()
            other = pick(avoid).connection
            if other is not None and other.replica_id not in avoid:
                continue
        avoid = frozenset()  # all have failed: the next round asks each again
        left_s = deadline - time.monotonic()
        num_rounds += 1
        pause_s = _BACKOFF.pause_s(num_rounds, at_least_s=pauses.at_least_s(0.0))
        await pauses.pause(max(0.0, min(pause_s, left_s)))
    # A program that failed at every replica, and replicas that took too long, are told from
    # replicas that are down.
    if last is not None and end_of_error(last):
        raise type(last)(f"{last.message} (tried again for {timeout_s:g} s)") from last
    detail = f"; the last error was: {last.message}" if last else ""
    failure = DeadlineError if isinstance(last, DeadlineError) else UnavailableError
    raise failure(
        f"{missing} within {timeout_s:g} s{detail}. See the job's component logs."
    ) from last


async def _ask_one(
    connection: ReplicaConnection,
    picked: Pick,
    ask: Callable[[ReplicaConnection, Pick, float], Awaitable[_T]],
    left_s: float,
) -> _T:
    """Ask the picked replica and note the outcome."""
    try:
        with UnlessClosed(connection):
            answer = await ask(connection, picked, left_s)
    except TroupeError as error:
        connection.calls(error.reason).inc()
        if isinstance(error, UnavailableError | DeadlineError):
            connection.failed()
        raise
    connection.answered()
    return answer
