"""Ends what a worker ran when the worker itself dies, where there is no pid namespace to do it.

The guard waits for the worker and does nothing else. It is the parent that orphans fall to, so
whatever the worker left behind is found there. Told to end (SIGTERM), it ends the worker first.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from typing import NoReturn

from . import kernel, sweep
from .leftovers import Leftovers


def go_on_guarded(uid: int, leftovers: Leftovers | None = None) -> str:
    """Go on in a child, the worker; this process guards it and ends after it.

    Returns a new folder for the runs' folders, which goes when the worker does; its name has the
    guard's process id, so that a folder that was left can be told from one in use.

    ``uid`` is the programs' user, whose ``leftovers`` are removed at both ends. Each of the two
    sweeps when the other is killed: the guard since it waits for the worker, the worker since the
    kernel tells it of its parent's death.
    """
    guard_pid = os.getpid()
    folder = tempfile.mkdtemp(prefix=f"troupe-run-{guard_pid}-")
    if leftovers is not None:
        leftovers.remove()
    os.chmod(folder, 0o711)  # noqa: PTH101 (programs of another user go through it)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        end_with_parent(guard_pid, signal.SIGTERM)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if leftovers is not None:
            leftovers.after = lambda: _stay_guarded(guard_pid)
        return folder
    os.closerange(3, 4096)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _killer(pid))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(TimeoutError):
        sweep.kill_all(uid, spared=0)
    if leftovers is not None:
        for run in os.listdir(folder):  # noqa: PTH208 (in step with the rest)
            leftovers.remove(f"{folder}/{run}")
        leftovers.remove()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def leave_in_order() -> None:
    """Have SIGTERM, which tells the worker that its guard is gone, end it by ``SystemExit``."""
    signal.signal(signal.SIGTERM, _leave)


def end_with_parent(parent_pid: int, by: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent dies, or end now if that has happened.

    A change of the user id undoes it. Not for a process that is the first of a pid namespace, which
    does not see its parent.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, by)
    if os.getppid() != parent_pid:
        os._exit(1)


def _stay_guarded(guard_pid: int) -> None:
    """Ask again to be told of the guard's death: a change of the user id undid it."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != guard_pid:
        raise SystemExit(1)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(1)


def _killer(pid: int) -> Callable[..., None]:
    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return kill
