"""Keys of model calls: each is one seat's of one episode, and dies with it.

Owns who a key is for. A key opens model calls and nothing else: how a run ended is told by the
secret of the run itself, which no client is given.
"""

import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from troupe_tasks.programs.calls import ProgramRun

PREFIX = "sk-troupe-"
KEY_SEAT = "x-troupe-key-seat"
"""Header that the endpoint writes over a client's: whose key the call came with."""
BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run: ``run`` leaves the agent to the other rules, ``by_agent`` decides it."""

    run: str
    by_agent: Mapping[str, str]


@dataclass(slots=True)
class KeyRing:
    """Keys that are valid now; safe to use from several threads."""

    _holders: dict[str, tuple[ProgramRun, str | None]] = field(
        default_factory=dict[str, tuple[ProgramRun, str | None]]
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, run: ProgramRun, agents: Iterable[str]) -> RunKeys:
        """Fresh keys of ``run``, which are valid until ``end``."""
        keys = RunKeys(_fresh(), {agent: _fresh() for agent in agents})
        with self._lock:
            self._holders[keys.run] = (run, None)
            self._holders.update({key: (run, agent) for agent, key in keys.by_agent.items()})
        return keys

    def end(self, run: ProgramRun) -> None:
        """No key of ``run`` is valid any more."""
        with self._lock:
            for key in [key for key, (held, _) in self._holders.items() if held is run]:
                del self._holders[key]

    def holder(self, headers: Mapping[str, str]) -> tuple[ProgramRun, str | None] | None:
        """The run and the agent of a request's key; None for a wrong key, an old one, or none."""
        given = headers.get("authorization", "")
        bearer = given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""
        with self._lock:
            return self._holders.get(bearer or headers.get("x-api-key", ""))


def _fresh() -> str:
    return PREFIX + secrets.token_hex(20)
