"""Ends a guest with all that it started, whichever dies first, the guest or its service.

The guest goes on in a child. The process that the service started waits, as the parent that orphans
fall to: a tool server that leads a session of its own is found there after the guest was killed.
"""

import contextlib
import ctypes
import os
import select
import signal
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_TICK_MS = 200


def go_on_in_child() -> None:
    """Returns in the child; this process ends after it, at the latest when stdin is closed."""
    libc = ctypes.CDLL(None)
    own = os.getpid()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    guest = os.fork()
    if guest == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != own:
            os._exit(1)
        return
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # so that its end is that of the guest's
    hung_up = select.poll()
    hung_up.register(0, 0)
    while guest not in _ended() and not hung_up.poll(_TICK_MS):
        pass
    _end_children()
    os._exit(0)


def _ended() -> set[int]:
    """Children that have ended; they are reaped."""
    ended: set[int] = set()
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)
    return ended


def _end_children() -> None:
    """Kill children until there are none: those of a killed one are this process's next."""
    # A kernel without CONFIG_PROC_CHILDREN has no such list.
    with contextlib.suppress(ChildProcessError, FileNotFoundError):
        while True:
            for child in Path("/proc/thread-self/children").read_text().split():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)
