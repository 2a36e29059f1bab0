"""Interrupts code that overruns, where the platform allows it: in the main thread.

Elsewhere it does nothing, and the caller measures afterwards. An alarm that was already set (a test
runner's time limit) keeps running.
"""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Overrun(BaseException):
    """Time is up. Not an Exception, so that it also stops code that catches every Exception."""


@contextmanager
def alarm(limit_s: float) -> Generator[None]:
    """Raise Overrun in the block after ``limit_s`` seconds, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer_s, _ = signal.getitimer(signal.ITIMER_REAL)
    if 0 < outer_s <= limit_s:
        yield
        return
    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s > 0:
            left_s = outer_s - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))


def _raise(number: int, frame: FrameType | None) -> None:
    raise Overrun
