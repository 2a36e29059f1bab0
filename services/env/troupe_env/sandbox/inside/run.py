"""One run, seen from the worker: has the cell forked, reads what it prints, ends it at a limit.

Owns deadlines and caps. Everything that it reads from the program is bytes.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any

from . import sweep, wire
from .capture import Capture
from .cell import Ends, RunContext
from .counters import Counters
from .template import Template

_TICK_S = 0.05
_DEATH_S = 10.0
_HAND_OVER_S = 30.0
_CPU_SLACK_S = 0.02
_LAST_WORDS = {
    b"MemoryError": "memory",
    b"BlockingIOError: [Errno 11]": "pids",
    b"OSError: [Errno 27]": "file_size",
    b"OSError: [Errno 28]": "file_size",
    b"RuntimeError: can't start new thread": "pids",
}
"""How Python says that an rlimit was hit, which nothing else tells."""


class Abandoned(Exception):  # noqa: N818 (an event, not a failure of this code)
    """The service is gone, or gave up on this run."""


class Broken(Exception):  # noqa: N818 (told to the service as such)
    """The machinery failed, not the program."""


class Run:
    """One program under its limits; for one use. Nothing of it is left after its ``with``."""

    def __init__(
        self,
        request: dict[str, Any],
        worker: RunContext,
        template: Template,
        counters: Counters,
    ) -> None:
        self._request = request
        self._worker = worker
        self._template = template
        self._counters = counters
        self._limit: str | None = None
        self._death_at = float("inf")
        self._look_at = 0.0
        self._pid = 0
        self._open: list[int] = []

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        while self._open:
            os.close(self._open.pop())

    def execute(self, body: bytearray, control: int) -> tuple[dict[str, Any], bytes]:
        """Run it to its end: the answer's header and body (stdout, then stderr).

        The program has ended by then, not yet all that it may have started.
        """
        request = self._request
        self._counters.begin(request["memory_bytes"], request["num_processes"] + 1)
        began = time.monotonic()
        (out, to_out), (err, to_err) = (os.pipe2(os.O_CLOEXEC) for _ in range(2))
        channel, cells_channel = socket.socketpair()
        self._open = [out, err, channel.detach()]
        ends = Ends(to_out, to_err, cells_channel.detach())
        try:
            self._template.ask(ends)
        finally:
            for number in ends.numbers:
                os.close(number)
        self._hand_over(body)
        self._pid = self._template.answer()
        captures = (Capture(out, request["output_bytes"]), Capture(err, request["output_bytes"]))
        deadline = began + request["wall_time_s"]
        report = self._watch(captures, (self._open[2], control), deadline)
        if not self._worker.is_namespaced:
            self._end()
            self._look_at = 0.0
            if self._limit is None and self._has_written_too_much(time.monotonic()):
                self._limit = "file_size"
        wall_s = time.monotonic() - began
        for capture in captures:
            capture.drain()
        header = self._header(report, captures)
        sizes = [len(capture.data) for capture in captures]
        answer = header | {"wall_s": wall_s, "sizes": sizes}
        return answer, bytes(captures[0].data + captures[1].data)

    def _hand_over(self, body: bytearray) -> None:
        """Give the cell its program; one that is dead already is found so by what watches it."""
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(self._open[2]))
        with channel, contextlib.suppress(wire.Closed):
            wire.send(channel, self._request, body, _HAND_OVER_S)

    def _watch(
        self, captures: tuple[Capture, Capture], others: tuple[int, int], deadline: float
    ) -> bytes:
        """Read until the cell reports or is ended; returns its report."""
        status, control = others
        outputs = {capture.number: capture for capture in captures}
        poller = select.poll()
        for number in (*outputs, *others):
            poller.register(number, select.POLLIN)
        while True:
            now = time.monotonic()
            self._enforce(captures, now, deadline)
            left_s = min(deadline, now + _TICK_S) - now
            for number, _ in poller.poll(max(1.0, left_s * 1000)):
                if number == control:
                    raise Abandoned
                if number == status:
                    return _report(status)
                if not outputs[number].take():
                    poller.unregister(number)

    def _enforce(self, captures: tuple[Capture, Capture], now: float, deadline: float) -> None:
        if self._limit is not None:
            if now > self._death_at:
                raise Broken(f"process {self._pid} was killed and does not die")
            return
        if any(capture.is_over for capture in captures):
            self._limit = "output"
        elif now >= deadline:
            self._limit = "wall_time"
        elif self._counters.cpu_s() > self._request["cpu_time_s"]:
            self._limit = "cpu_time"
        elif self._has_written_too_much(now):
            self._limit = "file_size"
        if self._limit is not None:
            self._death_at = now + _DEATH_S
            self._kill()

    def _has_written_too_much(self, now: float) -> bool:
        """Where no mount bounds it. Looking takes a tenth of the time at most."""
        leftovers, request = self._worker.leftovers, self._request
        if leftovers is None or now < self._look_at:
            return False
        is_over = leftovers.is_over(request["folder"], request["tmp_bytes"], request["tmp_inodes"])
        took_s = time.monotonic() - now
        self._look_at = now + max(_TICK_S, 10 * took_s)
        return is_over

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._sweep()

    def _sweep(self) -> None:
        if not self._worker.is_namespaced:
            sweep.kill_all(self._worker.uid, self._template.pid)

    def _end(self) -> None:
        """Leave nothing alive; returns when the kernel has taken down the whole pid namespace."""
        if not self._pid:
            return
        self._kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0
        self._sweep()

    def _header(self, report: bytes, captures: tuple[Capture, Capture]) -> dict[str, Any]:
        outcome: dict[str, Any] = json.loads(report) if report else {}
        if "error" in outcome and not self._counters.was_out_of_memory():
            raise Broken(outcome["error"])
        exit_code = outcome.get("exit_code", -signal.SIGKILL)
        limit = self._limit
        if any(capture.is_over for capture in captures):
            limit = limit or "output"
        if limit is None and exit_code != 0:
            limit = self._cause(exit_code, outcome, bytes(captures[1].data))
        return {
            "exit_code": exit_code,
            "limit": limit,
            "peak_bytes": max(outcome.get("peak_bytes", 0), self._counters.peak_bytes()),
        }

    def _cause(self, exit_code: int, outcome: dict[str, Any], stderr: bytes) -> str | None:
        """The limit behind a failed program, or None. It only explains; it changes no verdict."""
        if self._counters.was_out_of_memory():
            return "memory"
        used_up = outcome.get("cpu_s", 0.0) >= self._request["cpu_time_s"] - _CPU_SLACK_S
        if exit_code == -signal.SIGXCPU or (exit_code == -signal.SIGKILL and used_up):
            return "cpu_time"
        if outcome.get("is_full") or exit_code == -signal.SIGXFSZ:
            return "file_size"
        if self._counters.was_out_of_pids():
            return "pids"
        last = stderr.rstrip().rpartition(b"\n")[2]
        return next((limit for start, limit in _LAST_WORDS.items() if last.startswith(start)), None)


def _report(channel: int) -> bytes:
    """What the cell says at its end, which it writes at once; empty when it died."""
    try:
        return os.read(channel, select.PIPE_BUF)
    except ConnectionResetError:  # it died before it had read its program
        return b""
