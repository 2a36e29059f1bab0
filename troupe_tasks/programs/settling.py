"""When a program will do nothing more by itself: it has ended, or only waits for answers.

Owns how that is told: threads that sleep, no byte under way, looks that agree. Says nothing of
what the calls are.
"""

import os
import time

from troupe.errors import (
    ProgramDiedError,
    ProgramRunDiedError,
    ProgramRunTimeoutError,
    ProgramTimeoutError,
)
from troupe_tasks.programs.activity import Look, RunProcess, holds_socket, look
from troupe_tasks.programs.calls import ProgramRun
from troupe_tasks.programs.endpoint import ProgramEndpoint
from troupe_tasks.programs.image_launcher import ImageRun
from troupe_tasks.programs.launcher import StartedRun
from troupe_tasks.programs.params import ProgramParams
from troupe_tasks.programs.queues import bytes_under_way, socket_of

NUM_LOOKS = 3
"""Looks at the program's threads that must be alike before it counts as waiting."""
LOOK_S = 0.0015
BUSY_S = 1.0
"""A run that is never repeated counts as waiting when it has asked nothing more for so long, even
if a process of it is busy: a server or a build that its agent left in the background."""


class Settling:
    """Waits for one life of a program; ``deadline`` is of ``time.monotonic``."""

    def __init__(self, endpoint: ProgramEndpoint, run: ProgramRun, params: ProgramParams) -> None:
        self._endpoint = endpoint
        self._run = run
        self._params = params
        self.deadline = time.monotonic() + params.run_s

    def wait(self, process: StartedRun, *, is_answered: bool) -> None:
        """Return once the program has ended, or does nothing but wait for answers.

        Raises:
            ProgramDiedError: its process died.
            ProgramTimeoutError: it asked nothing for ``idle_s``, or ran for longer than ``run_s``.
                Both are final once a run that is never repeated has been answered.
        """
        idle_by = time.monotonic() + self._params.idle_s
        before: tuple[Look | None, int] | None = None
        num_alike, num_events, changed_at = 0, -1, 0.0
        while self._run.end is None:
            self._check_alive(process, idle_by, is_answered=is_answered)
            if not self._run.waiting or self._run.is_sending:
                with self._run.changed:
                    if self._run.end is None:
                        self._run.changed.wait(0.02)
                continue
            now = self._look(process)
            num_alike = num_alike + 1 if now is not None and now == before else 0
            if num_alike >= NUM_LOOKS - 1 and self._is_quiet(process, now):
                return
            if num_events != self._run.num_events:
                num_events, changed_at = self._run.num_events, time.monotonic()
            elif self._params.replay == "never" and time.monotonic() - changed_at > BUSY_S:
                return
            before = now
            time.sleep(LOOK_S)

    def _look(self, process: StartedRun) -> tuple[Look | None, int] | None:
        """Threads and events now; None while a thread runs."""
        seen = process.look() if isinstance(process, ImageRun) else look(process.pid)
        return (seen, self._run.num_events) if seen is not None and seen.is_asleep else None

    def _is_quiet(self, process: StartedRun, now: tuple[Look | None, int] | None) -> bool:
        """Whether nothing is under way between two equal looks: no byte unsent, or unread."""
        endpoint = self._endpoint
        endpoint.drain()
        if any(self._may_ask(process, port) for port in endpoint.young(self._run)):
            return False
        if bytes_under_way(endpoint.port, frozenset(self._run.ports)):
            return False
        endpoint.drain()
        return self._look(process) == now

    def _may_ask(self, process: StartedRun, port: int | None) -> bool:
        """Whether the first request of a young connection may be this run's.

        Where nothing tells whose it is, as of a client on another host or in another container, it
        may be: but then a run that is never repeated does not wait for it.
        """
        if port is None:
            return True
        inode = 0 if isinstance(process, ImageRun) else socket_of(port, self._endpoint.port)
        return holds_socket(process.pid, inode) if inode else self._params.replay == "always"

    def _check_alive(self, process: StartedRun, idle_by: float, *, is_answered: bool) -> None:
        params = self._params
        is_final = is_answered and params.replay == "never"
        if not process.is_alive:
            # Its last request, the end, may have arrived and not been read yet.
            self._endpoint.drain()
            if self._run.end is None:
                raise (ProgramRunDiedError if is_final else ProgramDiedError)(
                    f"the program's process died without an answer: {_cause(process, params)}"
                )
        now = time.monotonic()
        timeout = ProgramRunTimeoutError if is_final else ProgramTimeoutError
        if now > idle_by:
            raise timeout(
                f"the program neither asked a model nor ended for {params.idle_s:g} s (idle_s); "
                "it hangs, or its tools are slow"
            )
        if now > self.deadline:
            raise timeout(too_long(params))


def _cause(process: StartedRun, params: ProgramParams) -> str:
    status = process.end_status if isinstance(process, RunProcess) else None
    if status is not None and os.WIFEXITED(status):
        return f"it exited with status {os.WEXITSTATUS(status)}"
    signalled = "" if status is None else f"signal {os.WTERMSIG(status)}, "
    return f"{signalled}killed, out of memory, or past cpu_s = {params.cpu_s}"


def too_long(params: ProgramParams) -> str:
    """What is said of a run whose time is over."""
    return f"the program ran for more than {params.run_s:g} s (run_s)"
