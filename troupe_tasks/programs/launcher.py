"""Starts programs: a process of the program's interpreter that forks one process for each run.

Owns those processes: each run leads a process group, and ending it ends all that it began. A
program sees an empty environment but for its endpoint and a secret of its run.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.telemetry.logging import get_logger
from troupe.runtime.transient import is_transient
from troupe_tasks.programs.activity import RunProcess, start_time
from troupe_tasks.programs.calls import ProgramRun
from troupe_tasks.programs.host import reaped

HOST = Path(__file__).with_name("host.py")
REPLY_S = 30.0
HANGS_S = 0.2
"""How often a warm run is asked whether it hangs."""
SHOWN_CHARS = 2000
_log = get_logger(__name__)
_QUIET = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "AUTOGEN_DISABLE_RUNTIME_TRACING": "true",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Telemetry and downloads that frameworks begin by themselves."""
_PATIENT = {"LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S": "0"}
"""Time-outs of frameworks that the comments in a stream don't reset: none. ``answer_s`` bounds the
wait."""


def environment_of(python: str) -> dict[str, str]:
    """What a program by the interpreter ``python`` sees before it is told its endpoint."""
    return {
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": tempfile.gettempdir(),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **_QUIET,
        **_PATIENT,
    }


class StartedRun(Protocol):
    """A run's process, wherever it is."""

    @property
    def pid(self) -> int:
        """Of the program's own process."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether the program's own process still runs."""
        ...

    def kill(self) -> None:
        """End the run and all that it began."""
        ...


class ServerProcess(Protocol):
    """What forks runs: a process, or the other end of a connection to one."""

    @property
    def pid(self) -> int:
        """0 for that of another container."""
        ...

    @property
    def stdin(self) -> IO[bytes] | None:
        """Takes orders."""
        ...

    @property
    def stdout(self) -> IO[bytes] | None:
        """Gives replies."""
        ...

    def poll(self) -> int | None:
        """None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return once it has ended, or raise subprocess.TimeoutExpired."""
        ...


@dataclass(frozen=True, slots=True)
class WarmRun:
    """The run that warms a fork server up: its order, and how long it may ask nothing."""

    run: ProgramRun
    order: Mapping[str, Any]
    idle_s: float

    @property
    def has_hung(self) -> bool:
        """Whether it has asked, and then nothing more for ``idle_s``."""
        return self.run.has_hung(self.idle_s)


class ProgramLauncher:
    """Starts runs; safe to use from several threads. Close it after use; it may be used again."""

    def __init__(
        self,
        python: str,
        *,
        preload: list[str],
        folder: str | None,
        start_s: float,
        is_forked: bool = True,
    ) -> None:
        self._python = python
        self._preload = preload
        self._folder = folder
        self._start_s = start_s
        self._is_forked = is_forked
        self._lock = threading.Lock()
        self._server: ServerProcess | None = None
        self._log: IO[bytes] | None = None
        self._single: list[ServerProcess] = []

    def start(
        self,
        run: ProgramRun,
        order: Mapping[str, Any],
        warm: Callable[[], WarmRun | None],
    ) -> StartedRun:
        """Begin ``run`` as ``order`` says; ``warm`` gives the run that warms a fork server up.

        Raises:
            InvalidArgumentError: the interpreter cannot run the host, or import what is preloaded.
            UnavailableError: the fork server died or did not answer.
        """
        with self._lock:
            if not self._is_forked:
                return self._fresh(order)
            if self._server is None or self._server.poll() is not None:
                self._stop()
                self._serve(warm())
            try:
                pid = int(self._exchange(order, REPLY_S)["pid"])
            except UnavailableError:
                # A late reply would be read as that to the next order.
                self._stop()
                raise
            return RunProcess(pid, start_time(pid))

    def close(self) -> None:
        """End the fork server, and with it every run."""
        with self._lock:
            self._stop()

    def _serve(self, warm: WarmRun | None) -> None:
        """Start the process that forks; ``warm`` is over then: its calls are answered no more."""
        try:
            self._begin(warm)
        finally:
            if warm is not None:
                warm.run.void()

    def _begin(self, warm: WarmRun | None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _stop)
        self._server = self._popen("serve", self._log)
        order = warm.order if warm else None
        setup = {"preload": self._preload, "folder": self._folder, "warm": order}
        try:
            ready = self._exchange(setup, self._start_s, warm)
        except UnavailableError as error:
            told = self._stderr()
            if warm is not None:  # the program may have ended the process, or hung
                _tell_of(warm, error)
                self._stop()
                self._begin(None)
                return
            self._stop()
            raise InvalidArgumentError(
                f"{self._python} cannot start programs ({error.message}); its last words: "
                f"{told or 'none'}. Install the program's packages there, and correct preload",
                pointer="/task/params/preload",
            ) from error
        if ready["num_threads"] > 1:
            self._stop()
            if warm is not None:
                self._begin(None)
                return
            names = ", ".join(ready["names"]) or "not Python's"
            raise InvalidArgumentError(
                f"{', '.join(self._preload)} leave {ready['num_threads'] - 1} threads behind when "
                f"they are imported ({names}), which a fork would lose; set start: fresh",
                pointer="/task/params/start",
            )

    def _fresh(self, order: Mapping[str, Any]) -> RunProcess:
        self._single = [process for process in self._single if not _has_ended(process)]
        process = self._popen("once", subprocess.DEVNULL)
        self._single.append(process)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        return RunProcess(process.pid, start_time(process.pid))

    def _popen(self, mode: str, stderr: IO[bytes] | int) -> ServerProcess:
        try:
            return subprocess.Popen(
                [self._python, "-u", str(HOST), mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment_of(self._python),
                cwd=self._folder or tempfile.gettempdir(),
                start_new_session=True,
            )
        except OSError as error:
            if is_transient(error):
                raise UnavailableError(f"{self._python} cannot be started now: {error}") from error
            raise InvalidArgumentError(
                f"{self._python} cannot be run: {error}", pointer="/task/params/python"
            ) from error

    def _exchange(
        self, document: Mapping[str, Any], timeout_s: float, warm: WarmRun | None = None
    ) -> dict[str, Any]:
        server = self._server
        assert server is not None
        assert server.stdin is not None
        try:
            server.stdin.write(json.dumps(document).encode() + b"\n")
            server.stdin.flush()
        except ConnectionError as error:  # a pipe or a connection
            raise UnavailableError("the process that forks programs has ended") from error
        line = self._line(server, timeout_s, warm)
        if not line:
            raise UnavailableError(f"it did not answer in {timeout_s:g} s")
        return json.loads(line)

    def _line(self, server: ServerProcess, timeout_s: float, warm: WarmRun | None) -> bytes:
        """One line of the server, which writes no second one before it is asked again.

        Nothing when it said nothing in time, or when its ``warm`` run hangs. Raises
        UnavailableError when it has ended.
        """
        assert server.stdout is not None
        line, deadline = b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            left_s = max(0.0, deadline - time.monotonic())
            look_s = left_s if warm is None else min(left_s, HANGS_S)
            if not select.select([server.stdout], [], [], look_s)[0]:
                if look_s == left_s or (warm is not None and warm.has_hung):
                    return b""
                continue
            try:
                part = os.read(server.stdout.fileno(), 65536)
            except ConnectionError:
                part = b""
            if not part:
                raise UnavailableError("the process that forks programs has ended")
            line += part
        return line

    def _stderr(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-SHOWN_CHARS:].strip()

    def _stop(self) -> None:
        for process in self._single:
            if not _has_ended(process):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                _close(process.stdin, process.stdout)
        if (server := self._server) is not None:
            _close(server.stdin)  # it ends all runs, and itself
            try:
                server.wait(1.0)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
                server.wait()
            _close(server.stdout)
        self._server, self._single = None, []
        if self._log is not None:
            self._log.close()
            self._log = None


def _has_ended(process: ServerProcess) -> bool:
    """Whether a run in a process of its own has ended; then what it left is ended too."""
    if not reaped(process.pid):
        return False
    process.wait()  # so that it knows, too
    _close(process.stdin, process.stdout)
    return True


def _close(*pipes: IO[bytes] | None) -> None:
    for pipe in pipes:
        if pipe is not None:
            with contextlib.suppress(ConnectionError):
                pipe.close()


def _tell_of(warm: WarmRun, error: UnavailableError) -> None:
    """Log why there is no warm run; each run then imports what the program's module does."""
    why = error.message
    if warm.has_hung:
        why = f"the program asked, and then neither asked nor ended for {warm.idle_s:g} s (idle_s)"
    _log.warning("program.not_warmed", reason=why, then="going on without a warm run")
