"""Ends a process whose event loop is stalled: from outside it can't be told from a busy one.

Owns one thread that checks the loop's heartbeat. A thread that could not start for lack of memory,
or a call that never returns, blocks the loop for good; once the process ends, its launcher starts
a fresh one. A process that was itself stopped for a while is not taken for a stalled one.
"""

import asyncio
import faulthandler
import os
import sys
import threading

EXIT_STALLED = 1
LOOK_S = 1.0
STALLED_S = 120.0
"""Longer than any single piece of work on a loop, even on an overloaded machine."""


class EventLoopWatchdog:
    """Checks the heartbeat of the running loop until ``stop``.

    ``look_s`` is the time between two checks; after ``stalled_s`` of checks without a beat between
    them the tracebacks of all threads go to stderr and the process ends.
    """

    def __init__(self, *, stalled_s: float = STALLED_S, look_s: float = LOOK_S) -> None:
        self._stalled_s = stalled_s
        self._look_s = look_s
        self._num_beats = self._num_seen = 0
        self._silent_s = 0.0
        self._stopped = threading.Event()
        self._beating: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start watching; call it in the loop's thread."""
        self.beat()
        threading.Thread(target=self._watch, name="pulse", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        if self._beating is not None:
            self._beating.cancel()

    def beat(self) -> None:
        """Runs on the loop, and schedules itself again: the loop is alive."""
        self._num_beats += 1
        self._beating = asyncio.get_running_loop().call_later(self._look_s, self.beat)

    def is_stalled(self) -> bool:
        """One check: whether the loop has missed too many of them."""
        is_silent, self._num_seen = self._num_beats == self._num_seen, self._num_beats
        self._silent_s = self._silent_s + self._look_s if is_silent else 0.0
        return self._silent_s >= self._stalled_s

    def _watch(self) -> None:
        while not self._stopped.wait(self._look_s):
            if self.is_stalled():
                words = (
                    f"the event loop has stood still for {self._stalled_s:g} s; the process ends"
                )
                os.write(2, f"{words}, to be started afresh\n".encode())
                faulthandler.dump_traceback(sys.__stderr__ or 2)
                os._exit(EXIT_STALLED)
