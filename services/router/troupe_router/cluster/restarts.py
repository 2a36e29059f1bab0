"""Counts the deaths of components across their pods. In memory.

A container's restart count starts over in a new pod, and a quick restart falls between two
observations. Owns what one observation cannot show: how often a component died lately, and whether
that was reported.
"""

import time
from collections import deque
from dataclasses import dataclass, field, replace

from troupe.runtime.launch.launcher import ComponentStatus
from troupe_router.cluster.pod_status import with_advice
from troupe_router.cluster.workload_status import Observed

_ENDS = frozenset({"restarting", "failed", "exited"})


@dataclass(slots=True)
class _Past:
    """``life`` is the pod's uid and its container's restarts; ``restarts`` is the total so far."""

    life: tuple[str, int]
    restarts: int
    has_ended: bool = False
    deaths: deque[float] = field(default_factory=deque[float])


class RestartHistory:
    """More than ``max_restarts`` deaths in ``window_s`` are a failure."""

    def __init__(self, *, max_restarts: int = 6, window_s: float = 1800.0) -> None:
        self._max = max_restarts
        self._window_s = window_s
        self._pasts: dict[tuple[str, str], _Past] = {}

    def note(self, owner: str, observed: Observed) -> ComponentStatus:
        """The status with all restarts counted; each death shows as "restarting" at least once."""
        status, key = observed.status, (owner, observed.status.name)
        life = (observed.pod_uid, observed.pod_restarts)
        past = self._pasts.get(key)
        if past is None:
            if not observed.pod_uid:
                return status
            past = self._pasts[key] = _Past(life, status.restarts)
        unreported = 0
        if not observed.pod_uid:
            # The pod is gone and its successor does not exist yet.
            unreported = 0 if past.has_ended else 1
            past.has_ended = True
        elif life != past.life:
            is_same_pod = life[0] == past.life[0]
            ends = life[1] - past.life[1] if is_same_pod else life[1] + 1
            unreported = ends - (1 if past.has_ended else 0)
            past.life, past.restarts, past.has_ended = life, past.restarts + ends, False
        elif status.state in _ENDS and not past.has_ended:
            past.deaths.append(time.monotonic())
        past.has_ended = past.has_ended or status.state in _ENDS
        past.deaths.extend([time.monotonic()] * unreported)
        status = replace(status, restarts=past.restarts)
        if unreported and status.state not in _ENDS:
            reported = past.restarts if not observed.pod_uid else past.restarts - 1
            status = replace(status, state="restarting", restarts=reported)
        return self._give_up(status, past)

    def forget(self, owner: str) -> None:
        """Drop the history of the owner's components."""
        for key in [key for key in self._pasts if key[0] == owner]:
            del self._pasts[key]

    def _give_up(self, status: ComponentStatus, past: _Past) -> ComponentStatus:
        while past.deaths and time.monotonic() - past.deaths[0] > self._window_s:
            past.deaths.popleft()
        if status.state != "restarting" or len(past.deaths) <= self._max:
            return status
        words = f"it died {len(past.deaths)} times in {self._window_s:.0f} s"
        detail = with_advice("CrashLooping", f"{words}\n{status.detail}".strip())
        return replace(status, state="failed", condition="CrashLooping", detail=detail)
