"""What a program is doing, as the kernel tells: whether its threads sleep; and how a run is ended.

Reads /proc, so it is for Linux. Owns the question "will this program do anything by itself?",
but for bytes that are under way to it: troupe_tasks/programs/queues.py. Standard library alone: it
is copied into the container of a program's image too.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_ASLEEP = frozenset("SI")
_GONE = (FileNotFoundError, ProcessLookupError)
_STARTED, _EXIT_CODE = 19, 49
"""Places among ``_fields``."""


@dataclass(frozen=True, slots=True)
class Look:
    """The threads of a run's processes: each with its state and how often it ran."""

    threads: tuple[tuple[str, str, str], ...]

    @property
    def is_asleep(self) -> bool:
        """Whether every thread sleeps."""
        return all(state in _ASLEEP for _, state, _ in self.threads)


@dataclass(frozen=True, slots=True)
class RunProcess:
    """The process of one run; ``started`` tells it from a later process of the same pid."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether the program's own process still runs."""
        return bool(self.started) and start_time(self.pid) == self.started

    @property
    def end_status(self) -> int | None:
        """How its own process ended, as ``wait`` tells; None while it runs or once it is reaped."""
        with contextlib.suppress(*_GONE):
            fields = _fields(_PROC / str(self.pid))
            if fields[0] == "Z" and fields[_STARTED] == self.started:
                return int(fields[_EXIT_CODE])
        return None

    def kill(self) -> None:
        """End the run and all that it began.

        Also once its own process has ended: until that is reaped no other has its number, and
        whoever reaps it ends its group before (`host.reaped`).
        """
        if not self.started or _started(self.pid)[1] != self.started:
            return
        pids = descendants(self.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def look(pid: int) -> Look | None:
    """The threads of ``pid`` and its descendants now; None when the process is gone."""
    threads: list[tuple[str, str, str]] = []
    pids = [pid]
    for number in pids:
        tasks = _PROC / str(number) / "task"
        try:
            names = sorted(path.name for path in tasks.iterdir())
        except _GONE:
            continue
        for name in names:
            with contextlib.suppress(*_GONE):
                threads.append((name, _state(tasks / name), _ran(tasks / name)))
                pids += [int(child) for child in _text(tasks / name / "children").split()]
    alive = [thread for thread in threads if thread[1] not in "ZX"]
    is_gone = not any(state not in "ZX" for name, state, _ in threads if name == str(pid))
    return None if is_gone and len(alive) == 0 else Look(tuple(alive))


def descendants(pid: int) -> list[int]:
    """``pid`` and the processes that it and its children began, so far as they are known."""
    pids = [pid]
    for number in pids:
        with contextlib.suppress(*_GONE):
            for task in (_PROC / str(number) / "task").iterdir():
                pids += [int(child) for child in _text(task / "children").split()]
    return pids


def holds_socket(pid: int, inode: int) -> bool:
    """Whether ``pid``, or a process that it or its children began, has the socket ``inode``."""
    name = f"socket:[{inode}]"
    for number in descendants(pid):
        with contextlib.suppress(OSError):
            for opened in (_PROC / str(number) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(opened.readlink()) == name:
                        return True
    return False


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used; 0 where it cannot be read."""
    return _ticks_s(pid, 11)


def children_cpu_seconds(pid: int) -> float:
    """Processor time of the children that a process has reaped, and theirs; 0 likewise."""
    return _ticks_s(pid, 13)


def _ticks_s(pid: int, at: int) -> float:
    """Two fields of ``stat``, of user and system, added up."""
    try:
        fields = _fields(_PROC / str(pid))
        return (int(fields[at]) + int(fields[at + 1])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def start_time(pid: int) -> str:
    """When ``pid`` began, in ticks since the machine did; "" once it has ended.

    It tells two processes apart that had one pid.
    """
    state, started = _started(pid)
    return "" if state in "ZX" else started


def _started(pid: int) -> tuple[str, str]:
    """State and start of a process, which may have ended, and not be reaped yet."""
    try:
        fields = _fields(_PROC / str(pid))
    except _GONE:
        return "X", ""
    return fields[0], fields[_STARTED]


def _state(task: Path) -> str:
    return _fields(task)[0]


def _fields(task: Path) -> list[str]:
    """Fields of ``stat`` after the name, which may hold spaces and brackets."""
    return (task / "stat").read_text().rpartition(")")[2].split()


def _ran(task: Path) -> str:
    """Grows whenever the thread runs: time on a processor in ns and turns, or ticks."""
    told = _text(task / "schedstat").split()
    return f"{told[0]} {told[2]}" if len(told) == 3 else " ".join(_fields(task)[11:13])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
