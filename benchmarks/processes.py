"""CPU time and peak memory of processes, as /proc counts them."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """All processes that name the run's folder, and those below them; the command line too."""
    key = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2]
    return naming(key, pid)


def naming(key: bytes, *pids: int) -> list[int]:
    """``pids``, the processes whose command lines hold ``key``, and those below them."""
    parents = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    family = {*pids} | {p for p in parents if key in _read(f"/proc/{p}/cmdline")}
    grown = True
    while grown:
        more = {p for p, fields in parents.items() if fields and int(fields[1]) in family}
        grown = not more <= family
        family |= more
    return sorted(family)


def end_run(process: "subprocess.Popen[bytes]", patience_s: float = 300.0) -> None:
    """End ``troupe train`` in order; one that takes longer is killed with all its processes.

    By SIGTERM: what a background shell has started ignores SIGINT.
    """
    if process.poll() is None:
        of_run = family(process.pid)
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            for pid in of_run:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return _read(f"/proc/{pid}/stat").decode("utf-8", "replace").rpartition(") ")[2].split()


def cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) * TICK_S if fields else 0.0


def name_of(pid: int) -> str:
    """The module that a Python process runs, else its program."""
    words = [word.decode("utf-8", "replace") for word in _read(f"/proc/{pid}/cmdline").split(b"\0")]
    return words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name


def status_bytes(pid: int, field: str) -> int:
    """``VmHWM``, ``VmRSS`` or another size of the process's status, bytes; 0 where it is gone."""
    for line in _read(f"/proc/{pid}/status").decode("utf-8", "replace").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def peak_mb(pid: int) -> float:
    return status_bytes(pid, "VmHWM") / 2**20


def begin_peak(pid: int) -> int:
    """Count the process's peak (VmHWM) from here on; what it holds now, bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return status_bytes(pid, "VmRSS")


def tree_cpu_s(pid: int) -> float:
    """CPU time so far of a process, of what it has waited for, and of what runs below it."""
    parent = psutil.Process(pid)
    total = 0.0
    for process in (parent, *parent.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
