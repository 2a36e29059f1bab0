"""Counts the deaths of components over the lives of their pods. In memory.

A container's own count starts again in a new pod, and a quick restart falls between two looks.
Owns what one look cannot say: how often a component died of late, and whether that was told.
"""

import time
from collections import deque
from dataclasses import dataclass, field, replace

from troupe.runtime.launch.launcher import ComponentStatus
from troupe_router.cluster.pod_status import say
from troupe_router.cluster.workload_status import Observed

_ENDS = frozenset({"restarting", "failed", "exited"})


@dataclass(slots=True)
class _Past:
    """``life`` is the pod's uid and its container's restart count; ``restarts`` are all so far."""

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
        """The status with all restarts counted; each death is "restarting" at least once."""
        status, key = observed.status, (owner, observed.status.name)
        life = (observed.pod_uid, observed.pod_restarts)
        past = self._pasts.get(key)
        if past is None:
            if not observed.pod_uid:
                return status
            past = self._pasts[key] = _Past(life, status.restarts)
        untold = 0
        if not observed.pod_uid:
            # The pod is gone and the next one is not there yet.
            untold = 0 if past.has_ended else 1
            past.has_ended = True
        elif life != past.life:
            is_same_pod = life[0] == past.life[0]
            ends = life[1] - past.life[1] if is_same_pod else life[1] + 1
            untold = ends - (1 if past.has_ended else 0)
            past.life, past.restarts, past.has_ended = life, past.restarts + ends, False
        elif status.state in _ENDS and not past.has_ended:
            past.deaths.append(time.monotonic())
        past.has_ended = past.has_ended or status.state in _ENDS
        past.deaths.extend([time.monotonic()] * untold)
        status = replace(status, restarts=past.restarts)
        if untold and status.state not in _ENDS:
            told = past.restarts if not observed.pod_uid else past.restarts - 1
            status = replace(status, state="restarting", restarts=told)
        return self._give_up(status, past)

    def forget(self, owner: str) -> None:
        """The owner's components are over."""
        for key in [key for key in self._pasts if key[0] == owner]:
            del self._pasts[key]

    def _give_up(self, status: ComponentStatus, past: _Past) -> ComponentStatus:
        while past.deaths and time.monotonic() - past.deaths[0] > self._window_s:
            past.deaths.popleft()
        if status.state != "restarting" or len(past.deaths) <= self._max:
            return status
        words = f"it died {len(past.deaths)} times in {self._window_s:.0f} s"
        detail = say("CrashLooping", f"{words}\n{status.detail}".strip())
        return replace(status, state="failed", condition="CrashLooping", detail=detail)
