"""Bounds what SQLite keeps in memory, and lets a query that reached the bound run again alone.

The bound is SQLite's own and the process's: queries of several threads share it. Whether a query
fits must not depend on what runs beside it, so one that finds no memory is run again while no other
runs, and only that run counts.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from troupe.errors import OverloadedError

HEAP_BYTES = 256 << 20
"""Of all queries of a process: their sorters, temporary tables, values and pages."""
WAIT_S = 60.0
"""Longest wait for the queries of other threads, each of which its budget ends."""


def limit_heap(connection: sqlite3.Connection) -> None:
    """Set the bound for this process; nothing in it can raise it again."""
    connection.execute(f"PRAGMA hard_heap_limit={HEAP_BYTES}")


class Turns:
    """Queries run beside each other, or one of them alone; safe for many threads.

    Those that wait meanwhile go before the next that is to be alone, so hungry ones starve nobody.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_running = self._num_waiting = 0
        self._num_held = self._num_passes = 0
        self._is_alone = False

    @contextmanager
    def beside(self) -> Generator[None]:
        """Run beside others. One that waits to be alone goes first, once."""
        with self._changed:
            self._num_held += 1
            try:
                self._await(self._may_go)
                self._num_running += 1
            finally:
                self._num_held -= 1
                self._num_passes = min(max(self._num_passes - 1, 0), self._num_held)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        """Run while no other query does."""
        with self._changed:
            self._num_waiting += 1
            try:
                self._await(lambda: not (self._is_alone or self._num_running or self._num_passes))
                self._is_alone = True
            finally:
                self._num_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._num_passes = self._num_held
                self._changed.notify_all()

    def _may_go(self) -> bool:
        return not self._is_alone and (self._num_passes > 0 or not self._num_waiting)

    def _await(self, is_free: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_free():
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                raise OverloadedError(
                    f"A query waited {WAIT_S:g} s for the queries of other threads; try again, or "
                    "add replicas of the env service."
                )
