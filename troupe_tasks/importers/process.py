"""The processes that hold other libraries' environments: started when needed, killed when late.

Owns processes and deadlines. That a process died is a retryable error; that a request used up its
processor time is told as such, for the family to judge.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    TroupeError,
    UnavailableError,
)
from troupe.runtime.transient import is_transient
from troupe_tasks.programs.activity import cpu_seconds, descendants

GUEST = Path(__file__).parent / "guest" / "serve.py"
SHOWN_CHARS = 1500
END_S = 10.0


class ImportSettings(BaseSettings):
    """``TROUPE_IMPORT_*``."""

    model_config = SettingsConfigDict(
        env_prefix="TROUPE_IMPORT_", extra="ignore", use_attribute_docstrings=True
    )

    home: str | None = None
    """Home folder of environments: the hub's cache (.cache/huggingface), nltk_data and the like."""
    allows_runtime: bool = False
    """Let rewards of verifiers start programs, the model's among them, without a sandbox."""
    is_online: bool = False
    """Let environments download from the hub; else they find what the cache holds."""


class SpentError(TroupeError):
    """A request used up its processor time; its process was ended."""


class GuestProcess:
    """One process of ``python`` that serves ``kind``; answers one request at a time."""

    def __init__(self, python: str, kind: str, settings: Mapping[str, Any], *, start_s: float):
        self._python = python
        self._kind = kind
        self._settings = settings
        self._start_s = start_s
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._unread = b""
        self._pid = 0  # of the process that answers, once it does: a child of the one started
        self._opened_s = 0.0
        self.generation = 0

    def ask(self, op: str, *, cpu_s: float, timeout_s: float, **arguments: Any) -> Any:
        """What the guest's method ``op`` gives; the process is started where there is none.

        Raises:
            InvalidArgumentError: the environment refuses, or is broken.
            SpentError: the request used ``cpu_s`` of processor time and did not end.
            UnavailableError, DeadlineError, OverloadedError: a machine's failure; try again.
        """
        if not self._lock.acquire(timeout=timeout_s):
            raise OverloadedError(f"the process of {self._kind} was busy for {timeout_s:g} s")
        try:
            self._start()
            return self._exchange(op, arguments, cpu_s=cpu_s, timeout_s=timeout_s)
        except (SpentError, DeadlineError, UnavailableError):
            self._stop()
            raise
        finally:
            self._lock.release()

    def tell(self, op: str, *, timeout_s: float, **arguments: Any) -> None:
        """``ask`` whose answer nobody needs: nothing where the process is busy, or gone."""
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(TroupeError):
            self.ask(op, cpu_s=timeout_s, timeout_s=timeout_s, **arguments)

    def spent_s(self) -> float:
        """Processor time since the process was ready."""
        return 0.0 if self._process is None else cpu_seconds(self._pid) - self._opened_s

    def close(self) -> None:
        """End the process; a later request starts another."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _stop)
        try:
            self._process = subprocess.Popen(
                [self._python, "-u", "-s", str(GUEST), self._kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=_environment(self._python),
                cwd=tempfile.gettempdir(),
                start_new_session=True,
            )
        except OSError as error:
            if is_transient(error):
                raise UnavailableError(f"{self._python} cannot be started now: {error}") from error
            raise InvalidArgumentError(
                f"{self._python} cannot be run: {error}", pointer="/task/params/python"
            ) from error
        self.generation += 1
        weakref.finalize(self, _end, self._process)
        start_s = self._start_s
        opened = self._exchange("opened", self._settings, cpu_s=start_s, timeout_s=start_s)
        self._pid = opened["pid"]
        self._opened_s = cpu_seconds(self._pid)

    def _exchange(
        self, op: str, arguments: Mapping[str, Any], *, cpu_s: float, timeout_s: float
    ) -> Any:
        process, number = self._process, next(self._ids)
        assert process is not None
        assert process.stdin is not None
        spent_s, deadline = cpu_seconds(self._pid), time.monotonic() + timeout_s
        line = json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n"
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except OSError as error:
            raise UnavailableError(f"the process of {self._kind} has ended: {error}") from error
        while True:
            reply = self._line(process, deadline, lambda: cpu_seconds(self._pid) - spent_s, cpu_s)
            if reply.get("id") == number:
                return self._read(reply)

    def _read(self, reply: Mapping[str, Any]) -> Any:
        if "ok" in reply:
            return reply["ok"]
        if reply["kind"] == "machine":
            raise UnavailableError(f"{self._kind}: {reply['error']}")
        hint = "" if reply["kind"] == "refused" else f" (in {self._python})"
        raise InvalidArgumentError(f"{reply['error']}{hint}", pointer="/task/name")

    def _line(self, process: Any, deadline: float, spent: Any, cpu_s: float) -> dict[str, Any]:
        """The next line; waits in short pieces, so that a request without end is seen early."""
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise DeadlineError(f"the process of {self._kind} did not answer in time")
            if not select.select([process.stdout], [], [], min(left_s, 0.2))[0]:
                if spent() > cpu_s:
                    raise SpentError(f"{self._kind}: a request took more than {cpu_s:g} s")
                continue
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise UnavailableError(
                    f"the process of {self._kind} ended; its last words: {self._last_words()}"
                )
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def _last_words(self) -> str:
        if self._log is None:
            return "none"
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-SHOWN_CHARS:].strip() or "none"

    def _stop(self) -> None:
        if self._process is not None:
            _end(self._process)
        if self._log is not None:
            self._log.close()
        self._process, self._log, self._unread, self._pid = None, None, b"", 0


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process, which ends all that it started when stdin closes (``guest_end``)."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_S)
        return
    for pid in descendants(process.pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_S)


def _environment(python: str) -> dict[str, str]:
    """No variable of this process: an environment finds no key, and hashes alike everywhere."""
    settings = ImportSettings()
    home = settings.home or str(Path(tempfile.gettempdir()) / "troupe-importers")
    Path(home).mkdir(parents=True, exist_ok=True)
    return {
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "0" if settings.is_online else "1",
        "HF_DATASETS_OFFLINE": "0" if settings.is_online else "1",
        # Clients of judges are made before anyone is asked, and want a key to be made.
        "OPENAI_API_KEY": "none",
        "TOKENIZERS_PARALLELISM": "false",
        "DO_NOT_TRACK": "1",
    }
