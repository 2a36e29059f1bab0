"""Kills what a program left behind where there is no pid namespace to do it.

That is every descendant of this process, which is its children's reaper. They are stopped before
any is killed, so that none forks on meanwhile. Where that is not enough and programs have a user of
their own, everything of that user ends too; other sandboxes of the machine may share it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_GIVE_UP_S = 5.0
_PATIENCE_S = 2.0


def kill_all(uid: int, spared: int) -> None:
    """Kill and reap until nothing but ``spared`` is left; raises TimeoutError when it stays."""
    began = time.monotonic()
    deadline = began + _GIVE_UP_S
    while True:
        if uid and os.geteuid() == 0 and time.monotonic() > began + _PATIENCE_S:
            _kill_user(uid)
        left = _stopped(spared, deadline)
        _signal_each(left, signal.SIGKILL)
        _reap()
        if not left:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("a program's processes do not die")
        time.sleep(0.001)


def _stopped(spared: int, deadline: float) -> set[int]:
    """Every descendant but ``spared``, each stopped: looked for until no further one is found."""
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        further = {*_descendants(os.getpid())} - stopped - {spared}
        if not further:
            break
        _signal_each(further, signal.SIGSTOP)
        stopped |= further
    return stopped


def _signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


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
