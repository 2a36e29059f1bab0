"""The first process of a run: builds the program's cell, starts the program in it, reports.

It is pid 1 of the run's pid namespace: when it ends the kernel kills all that is left. It reads the
program itself, runs no line of it, and the program can neither signal, trace nor read it.
"""

import functools
import json
import os
import signal
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from . import guard, kernel, program, root, wire
from .leftovers import Leftovers
from .seccomp import Filter

INSIDE_UID = 1000
"""The user that a program sees itself as."""


_REQUEST_S = 30.0


class Ends:
    """A run's descriptors: where its outputs go, and the channel of the request and the report."""

    def __init__(self, stdout: int, stderr: int, channel: int) -> None:
        self.stdout, self.stderr, self.channel = stdout, stderr, channel

    @property
    def numbers(self) -> tuple[int, int, int]:
        """In the order of the constructor."""
        return self.stdout, self.stderr, self.channel


def live(ends: Ends, worker: "RunContext") -> Callable[[], NoReturn]:
    """Run the first process, which ends here; returns in its child, with the program to run."""
    try:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, ends.channel)
        request, body = wire.receive(channel, _REQUEST_S)
        source = _prepare(request, body, ends, worker)
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            if not worker.is_namespaced:
                guard.end_with_parent(own_pid)
            return functools.partial(program.become, request, source, (ends.stdout, ends.stderr))
        os.close(ends.stdout)
        os.close(ends.stderr)
        report = _await(pid, worker.is_namespaced)
    except BaseException as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    try:
        os.write(ends.channel, json.dumps(report).encode())
    finally:
        os._exit(0)


def keep_only(numbers: Iterable[int]) -> None:
    """Close every other descriptor above stderr."""
    low = 3
    for number in sorted(numbers):
        os.closerange(low, number)
        low = number + 1
    os.closerange(low, 4096)


class RunContext:
    """A worker's settings for all its runs."""

    def __init__(
        self,
        *,
        is_namespaced: bool,
        worker_pid: int,
        runs_folder: str,
        uid: int,
        proc: int,
        joins: list[int],
        leftovers: Leftovers | None = None,
    ) -> None:
        self.is_namespaced = is_namespaced
        self.worker_pid = worker_pid
        self.runs_folder = runs_folder
        self.uid = uid
        self.proc = proc
        self.joins = joins
        self.leftovers = leftovers
        self.filter = Filter()


def _prepare(request: dict[str, Any], body: bytearray, ends: Ends, worker: RunContext) -> str:
    for number in worker.joins:
        os.write(number, b"0")
    _be_killed_first(worker)
    if worker.is_namespaced:
        _map_user(worker)
        root.private_tmp(request["tmp_bytes"], request["tmp_inodes"])
    elif os.geteuid() == 0 and worker.uid:
        os.setgroups([])
        os.setresgid(worker.uid, worker.uid, worker.uid)
        os.setresuid(worker.uid, worker.uid, worker.uid)
    os.chdir(request["folder"])
    source = _write_files(request, body)
    if worker.is_namespaced:
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        guard.end_with_parent(worker.worker_pid)
    keep_only(ends.numbers)
    os.umask(0o022)
    worker.filter.load()
    return source


def _be_killed_first(worker: RunContext) -> None:
    """Have the kernel end the run, not its worker, when the memory of their group is used up."""
    number = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=worker.proc)
    os.write(number, b"1000")
    os.close(number)


def _map_user(worker: RunContext) -> None:
    outer = worker.uid
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{INSIDE_UID} {outer} 1"),
        ("uid_map", f"{INSIDE_UID} {outer} 1"),
    ):
        number = os.open(f"self/{name}", os.O_WRONLY, dir_fd=worker.proc)
        os.write(number, text.encode())
        os.close(number)


def _write_files(request: dict[str, Any], body: bytearray) -> str:
    """Lay out standard input and files; the source text, which is a file too."""
    texts: list[memoryview] = []
    start = 0
    for size in request["sizes"]:
        texts.append(memoryview(body)[start : start + size])
        start += size
    for name, text in zip(request["names"], texts, strict=True):
        if "/" in name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
        number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        while text:
            text = text[os.write(number, text) :]
        os.close(number)
    return str(texts[1], errors="surrogatepass")


def _await(pid: int, is_namespaced: bool) -> dict[str, Any]:
    """Wait for the program, reaping orphans meanwhile; returns the resources it used."""
    cpu_s, peak_kib = 0.0, 0
    while True:
        ended, status, usage = os.wait4(-1, 0)
        cpu_s += usage.ru_utime + usage.ru_stime
        peak_kib = max(peak_kib, usage.ru_maxrss)
        if ended == pid:
            break
    is_full = False
    if is_namespaced:
        tmp = os.statvfs("/tmp")
        is_full = tmp.f_bfree == 0 or tmp.f_ffree == 0
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "cpu_s": cpu_s,
        "peak_bytes": peak_kib * 1024,
        "is_full": is_full,
    }
