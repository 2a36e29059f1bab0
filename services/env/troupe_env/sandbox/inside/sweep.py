"""Kills what a program left behind where there is no pid namespace to do it.

With a user of its own, everything of that user; otherwise every descendant of this process, which
is its children's reaper.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

_GIVE_UP_S = 5.0


def kill_all(uid: int, spared: int) -> None:
    """Kill and reap until nothing but ``spared`` is left; raises TimeoutError when it stays."""
    deadline = time.monotonic() + _GIVE_UP_S
    while True:
        if uid and os.geteuid() == 0:
            _kill_user(uid)
        left = [pid for pid in _descendants(os.getpid()) if pid != spared]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if not left:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("a program's processes do not die")
        time.sleep(0.001)


def _kill_user(uid: int) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _descendants(pid: int) -> list[int]:
    descendants: list[int] = []
    pending = [pid]
    while pending:
        current = pending.pop()
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{current}/task/{current}/children").read_text()
            children = [int(child) for child in text.split()]
            descendants += children
            pending += children
    return descendants


def _reap() -> None:
    """Reap what has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
