"""Keeps processes that compare answers: started when needed, killed when late, replaced.

Owns processes and deadlines; knows nothing of mathematics. That a process died or the machine is
slow is a retryable error; that an answer used up its processor time is a verdict.
"""

import contextlib
import importlib.util
import json
import os
import queue
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any, Literal

from troupe.errors import DeadlineError, InvalidArgumentError, OverloadedError, UnavailableError
from troupe_tasks.programs.activity import cpu_seconds

Verdict = Literal["equal", "different", "unreadable", "too_hard"]

WORKER = Path(__file__).with_name("equivalence_worker.py")

START_TIMEOUT_S = 60.0
MAX_LINE_BYTES = 4096


class WorkerProcess:
    """One process that answers one question at a time. Not for several threads at once."""

    def __init__(self, script: Path = WORKER) -> None:
        # -P and -s keep the working folder and the user's packages out; a fixed hash seed keeps
        # computer algebra, which iterates over sets, the same on every machine.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        self._unread = b""
        self._num_asked = 0
        self._finalizer = weakref.finalize(self, _end, self._process)
        self._receive(time.monotonic() + START_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, gold: str, candidate: str, *, cpu_s: float, timeout_s: float) -> Verdict:
        """The verdict; raises DeadlineError or UnavailableError, after which it must be closed."""
        self._num_asked += 1
        cpu_before = cpu_seconds(self._process.pid)
        request = {"id": self._num_asked, "gold": gold, "candidate": candidate, "cpu_s": cpu_s}
        deadline = time.monotonic() + timeout_s
        try:
            self._send(request)
            answer = self._receive(deadline)
        except DeadlineError:
            # Native code that never looks at signals: the answer's fault, not the machine's.
            if cpu_seconds(self._process.pid) - cpu_before >= cpu_s:
                return self._given_up()
            raise
        if answer.get("id") != self._num_asked:
            raise UnavailableError(
                "The answer checker's replies are out of step; it is replaced. Try again."
            )
        return answer["verdict"]

    @property
    def is_usable(self) -> bool:
        """Whether another question may be asked."""
        return self._finalizer.alive and self._process.poll() is None

    def close(self) -> None:
        """Kill it and everything it holds."""
        self._finalizer()

    def _given_up(self) -> Verdict:
        self.close()
        return "too_hard"

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise UnavailableError(
                f"The answer checker (pid {self.pid}) is gone: {error}; it is replaced. Try again."
            ) from error

    def _receive(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([file], [], [], left_s)[0]:
                raise DeadlineError(
                    f"The answer checker (pid {self.pid}) did not answer in time, though the "
                    "answer used little processor time: this machine is overloaded. Try again."
                )
            data = os.read(file, MAX_LINE_BYTES)
            if not data:
                raise UnavailableError(
                    f"The answer checker (pid {self.pid}) ended with status "
                    f"{self._process.wait(timeout=10)}; it is replaced. Try again."
                )
            self._unread += data
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)


class WorkerPool:
    """At most ``size`` processes, started on demand, warm ones first; safe in several threads."""

    def __init__(self, size: int, *, cpu_s: float, timeout_s: float, wait_s: float) -> None:
        """``cpu_s`` and ``timeout_s`` bound one question, ``wait_s`` the wait for a process."""
        self._cpu_s, self._timeout_s, self._wait_s = cpu_s, timeout_s, wait_s
        self._size = size
        self._seats: queue.LifoQueue[WorkerProcess | None] = queue.LifoQueue(size)
        for _ in range(size):
            self._seats.put(None)

    def ask(self, gold: str, candidate: str) -> Verdict:
        """The verdict on one pair; a process that died is replaced and asked once more.

        Raises:
            InvalidArgumentError: math-verify is not installed.
            OverloadedError: no process was free in time.
            DeadlineError, UnavailableError: a machine's failure; try again.
        """
        _require_math_verify()
        try:
            return self._ask_once(gold, candidate)
        except UnavailableError:
            return self._ask_once(gold, candidate)

    def close(self) -> None:
        """Kill the processes that are idle; busy ones end with their question."""
        for _ in range(self._size):
            with contextlib.suppress(queue.Empty):
                if worker := self._seats.get_nowait():
                    worker.close()
                self._seats.put(None)

    def _ask_once(self, gold: str, candidate: str) -> Verdict:
        try:
            seat = self._seats.get(timeout=self._wait_s)
        except queue.Empty:
            raise OverloadedError(
                f"All {self._size} answer checkers were busy for {self._wait_s:g} s; try again, "
                "or add replicas of the env service."
            ) from None
        try:
            if seat is None or not seat.is_usable:
                seat = WorkerProcess()
            verdict = seat.ask(gold, candidate, cpu_s=self._cpu_s, timeout_s=self._timeout_s)
        except BaseException:
            if seat is not None:
                seat.close()
            self._seats.put(None)
            raise
        self._seats.put(seat if seat.is_usable else None)
        return verdict


def _require_math_verify() -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise InvalidArgumentError(
            "comparing answers that are not plain numbers needs math-verify, which is not "
            "installed: pip install 'troupe[math]'"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
